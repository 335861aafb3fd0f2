#include <tapeformer/autograd/kernels/cuda/map.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>
#include <tapeformer/autograd/kernels/optim.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

constexpr Index kNormBlocks = 1024;  // on any device: they fix the order of the sum
constexpr Index kSettings = 16;      // in the arguments of a launch

/// The elements [from, to) of a parameter's chunk.
struct ChunkRange {
  Index from, to;
};
__device__ ChunkRange range_of(const StepChunk& chunk, Index count) {
  const Index from = chunk.part * kStepChunk, to = from + kStepChunk;
  return {from, to < count ? to : count};
}

/// Calls use(constant N, i) for this thread's packs of N elements in the range, and with N = 1 for the rest
/// of it; for all of it if addresses are not aligned.
template <class T, class Use>
__device__ void for_each_pack(const ChunkRange& range, bool packed, Use&& use) {
  constexpr int N = 16 / sizeof(T);
  const Index packs_end = packed ? range.from + (range.to - range.from) / N * N : range.from;
  for (Index i = range.from + Index{threadIdx.x} * N; i < packs_end; i += Index{blockDim.x} * N)
    use(std::integral_constant<int, N>{}, i);
  for (Index i = packs_end + threadIdx.x; i < range.to; i += blockDim.x)
    use(std::integral_constant<int, 1>{}, i);
}

template <class T>
__global__ void sum_of_squares_kernel(StepTensors all, double* sums) {
  constexpr int N = 16 / sizeof(T);
  double sum = 0;
  for (Index at = blockIdx.x; at < all.chunk_count; at += gridDim.x) {
    const StepChunk chunk = all.chunks[at];
    const T* gradient = static_cast<const T*>(all.tensors[chunk.tensor].gradient);
    const ChunkRange range = range_of(chunk, all.tensors[chunk.tensor].count);
    constexpr Index kPacks = kStepChunk / (kBlock * N);
    if (are_packed(gradient) && range.to - range.from == kStepChunk) {
      Pack<T, N> g[kPacks];  // loaded together
#pragma unroll
      for (Index k = 0; k < kPacks; ++k)
        g[k] = load_pack<N>(gradient + range.from + (k * kBlock + threadIdx.x) * N);
#pragma unroll
      for (Index k = 0; k < kPacks; ++k) {
#pragma unroll
        for (int e = 0; e < N; ++e) sum += static_cast<double>(g[k].of[e]) * static_cast<double>(g[k].of[e]);
      }
    } else {
      for (Index i = range.from + threadIdx.x; i < range.to; i += blockDim.x)
        sum += static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/// Runs as one block.
__global__ void norm_kernel(Index count, const double* sums, double share, double max_norm, double* norm,
                            double* factor) {
  double sum = 0;
  for (Index i = threadIdx.x; i < count; i += blockDim.x) sum += sums[i];
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  *norm = share * sqrt(sum);
  *factor = step_factor(*norm, share, max_norm);
}

/// The rules of several settings, from `first` on; a launch handles parameters with these.
template <class T, class Step>
struct StepRules {
  StepRule<T, Step> of[kSettings];
  Index first;
};

/// One block per chunk. States that a parameter does not have count as zero.
template <class T, class Step>
__global__ void step_kernel(StepTensors all, StepRules<T, Step> rules, const double* factor) {
  const StepChunk chunk = all.chunks[blockIdx.x];
  const StepTensor x = all.tensors[chunk.tensor];
  if (x.setting < rules.first || x.setting >= rules.first + kSettings || isnan(*factor)) return;
  const StepRule<T, Step>& rule = rules.of[x.setting - rules.first];
  const T scale = static_cast<T>(*factor);
  const T* gradient = static_cast<const T*>(x.gradient);
  T *state1 = static_cast<T*>(x.state1), *state2 = static_cast<T*>(x.state2),
    *value = static_cast<T*>(x.value);
  const bool packed = are_packed(gradient, state1, state2, value, x.shadow);
  for_each_pack<T>(range_of(chunk, x.count), packed, [&](auto size, Index i) {
    constexpr int N = decltype(size)::value;
    const Pack<T, N> g = load_pack<N>(gradient + i);
    Pack<T, N> y = load_pack<N>(value + i), m{}, v{};
    if (state1 != nullptr) m = load_pack<N>(state1 + i);
    if (state2 != nullptr) v = load_pack<N>(state2 + i);
    Pack<BFloat16, N> narrow;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      rule.update(g.of[k] * scale, m.of[k], v.of[k], y.of[k]);
      narrow.of[k] = BFloat16(y.of[k]);
    }
    if (state1 != nullptr) store_pack(state1 + i, m);
    if (state2 != nullptr) store_pack(state2 + i, v);
    store_pack(value + i, y);
    if (x.shadow != nullptr) store_pack(x.shadow + i, narrow);
  });
}

/// One block per chunk.
template <class T>
__global__ void average_kernel(StepTensors all, T weight, const double* norm) {
  if (!isfinite(*norm)) return;
  const StepChunk chunk = all.chunks[blockIdx.x];
  const StepTensor x = all.tensors[chunk.tensor];
  const T* value = static_cast<const T*>(x.value);
  T* average = static_cast<T*>(x.state1);
  for_each_pack<T>(range_of(chunk, x.count), are_packed(value, average), [&](auto size, Index i) {
    constexpr int N = decltype(size)::value;
    const Pack<T, N> y = load_pack<N>(value + i);
    Pack<T, N> mean = load_pack<N>(average + i);
#pragma unroll
    for (int k = 0; k < N; ++k) mean.of[k] += weight * (y.of[k] - mean.of[k]);
    store_pack(average + i, mean);
  });
}

/// One block per chunk.
template <class T>
__global__ void exchange_kernel(StepTensors all) {
  const StepChunk chunk = all.chunks[blockIdx.x];
  const StepTensor x = all.tensors[chunk.tensor];
  T *value = static_cast<T*>(x.value), *other = static_cast<T*>(x.state1);
  const ChunkRange range = range_of(chunk, x.count);
  for (Index i = range.from + threadIdx.x; i < range.to; i += blockDim.x) {
    const T now = other[i];
    other[i] = value[i];
    value[i] = now;
    if (x.shadow != nullptr) x.shadow[i] = BFloat16(now);
  }
}

template <class T>
struct Times {
  T factor;
  __device__ T operator()(T x) const { return x * factor; }
};

}  // namespace

template <class T>
void gradient_norm(Cuda on, const StepTensors& all, double share, double max_norm, double* norm,
                   double* factor) {
  const Index blocks = std::min(all.chunk_count, kNormBlocks);
  const Scratch<double> sums(on, blocks);
  launch(on, "sum_of_squares", sum_of_squares_kernel<T>, blocks, all, sums.data());
  launch(on, "norm", norm_kernel, {1, 1024}, blocks, sums.data(), share, max_norm, norm, factor);
}

template <class T, class Step>
void optimizer_step(Cuda on, const StepTensors& all, const Step* steps, Index step_count,
                    const double* factor) {
  for (Index first = 0; first < step_count; first += kSettings) {
    StepRules<T, Step> rules;
    rules.first = first;
    for (Index i = 0; i < kSettings && first + i < step_count; ++i)
      rules.of[i] = StepRule<T, Step>(steps[first + i]);
    launch(on, "optimizer_step", step_kernel<T, Step>, all.chunk_count, all, rules, factor);
  }
}

template <class T>
void average_step(Cuda on, const StepTensors& all, double weight, const double* norm) {
  launch(on, "average_step", average_kernel<T>, all.chunk_count, all, static_cast<T>(weight), norm);
}

template <class T>
void exchange_values(Cuda on, const StepTensors& all) {
  launch(on, "exchange_values", exchange_kernel<T>, all.chunk_count, all);
}

template <class T>
void scale_in_place(Cuda on, Index count, double factor, T* x) {
  map(on, "scale_in_place", count, Times<T>{static_cast<T>(factor)}, Write<T>{x, false},
      static_cast<const T*>(x));
}

TAPEFORMER_WIDE_KERNEL(Cuda, gradient_norm);
TAPEFORMER_WIDE_KERNEL(Cuda, average_step);
TAPEFORMER_WIDE_KERNEL(Cuda, exchange_values);
TAPEFORMER_WIDE_KERNEL(Cuda, scale_in_place);

#define INSTANTIATE_STEP(Step, T) \
  template void optimizer_step<T>(Cuda, const StepTensors&, const Step*, Index, const double*);
#define INSTANTIATE(T) TAPEFORMER_STEPS(INSTANTIATE_STEP, T)
TAPEFORMER_CPU_TYPES(INSTANTIATE)

}  // namespace tapeformer::kernels
