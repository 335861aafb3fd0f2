#include <tapeformer/autograd/kernels/cuda/pack.h>
#include <tapeformer/autograd/kernels/dropout.h>

namespace tapeformer::kernels {
namespace {

/// The bits of two groups of the mask, made by a warp: each lane has the four words of one of their 32
/// blocks. For word w, the lower 16 lanes vote on elements 16 w to 16 w + 15 of the first group, the upper
/// ones on those of the second. Returns the mask word `of`, one of four.
__device__ unsigned vote_on_bits(const PhiloxStream& stream, Index first_group, std::uint32_t dropped,
                                 int of) {
  const PhiloxBlock random = stream.block(first_group * (kDropoutGroup / 4) + own_lane());
  unsigned votes[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) votes[w] = __ballot_sync(kAllLanes, random.word[w] >= dropped);
  const unsigned low = of % 2 == 0 ? votes[0] : votes[2], high = of % 2 == 0 ? votes[1] : votes[3];
  return of / 2 == 0 ? (low & 0xFFFFu) | high << 16 : low >> 16 | (high & 0xFFFF0000u);
}

/// Calls use(the first of two groups) for the groups of this warp.
template <class Use>
__device__ void for_each_pair_of_groups(Index groups, Use&& use) {
  const Index warps = Index{gridDim.x} * blockDim.x / kWarp;
  for (Index first = (Index{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp * 2; first < groups;
       first += warps * 2)
    use(first);
}

__global__ void dropout_mask_kernel(PhiloxStream stream, Index groups, std::uint32_t dropped,
                                    std::int32_t* mask) {
  stream = stream.settled();
  const int lane = own_lane();
  for_each_pair_of_groups(groups, [&](Index first) {
    const unsigned bits = vote_on_bits(stream, first, dropped, lane % 4);
    if (lane < 4 && first + lane / 2 < groups) mask[2 * first + lane] = static_cast<std::int32_t>(bits);
  });
}

/// N neighbours of x; an element is kept if its bit, the lowest first, is set.
template <int N, class T>
__device__ Pack<Wide<T>, N> kept(const T* x, unsigned bits, Wide<T> scale) {
  const Pack<T, N> from = load_pack<N>(x);
  Pack<Wide<T>, N> values;
#pragma unroll
  for (int k = 0; k < N; ++k)
    values.of[k] = (bits >> k & 1u) != 0 ? static_cast<Wide<T>>(from.of[k]) * scale : Wide<T>(0);
  return values;
}

/// The mask and the kept elements of x; each lane has four of the 128 elements of two groups.
template <class T>
__global__ void dropout_forward_kernel(PhiloxStream stream, Index count, bool packed, std::uint32_t dropped,
                                       Wide<T> scale, const T* x, std::int32_t* mask, Write<T> y) {
  constexpr int kOwn = 2 * kDropoutGroup / kWarp;
  stream = stream.settled();
  const int lane = own_lane();
  const Index groups = dropout_mask_words(count) / 2;
  for_each_pair_of_groups(groups, [&](Index first) {
    const unsigned bits = vote_on_bits(stream, first, dropped, lane / 8);
    if (lane % 8 == 0 && first + lane / 16 < groups)
      mask[2 * first + lane / 8] = static_cast<std::int32_t>(bits);
    const Index from = first * kDropoutGroup + lane * kOwn;
    const unsigned own = bits >> lane % 8 * kOwn;
    if (packed && from + kOwn <= count) {
      put_pack(y, from, kept<kOwn>(x + from, own, scale));
    } else {
      for (int k = 0; k < kOwn && from + k < count; ++k)
        put_pack(y, from + k, kept<1>(x + from + k, own >> k, scale));
    }
  });
}

template <class T>
__global__ void dropout_apply_kernel(Index count, bool packed, const std::int32_t* mask, Wide<T> scale,
                                     const T* x, Write<T> y) {
  for_each_pack_of_grid<kCommonPack<T>>(count, packed, [&](auto size, Index i) {
    const unsigned bits = static_cast<unsigned>(mask[i / 32]) >> (i % 32);
    put_pack(y, i, kept<decltype(size)::value>(x + i, bits, scale));
  });
}

/// One warp for every two groups.
Index blocks_for_groups(Index groups) { return blocks_for((groups + 1) / 2 * kWarp); }

}  // namespace

void dropout_mask(Cuda on, const PhiloxStream& stream, Index count, std::uint32_t dropped,
                  std::int32_t* mask) {
  const Index groups = dropout_mask_words(count) / 2;
  launch(on, "dropout_mask", dropout_mask_kernel, blocks_for_groups(groups), stream, groups, dropped, mask);
}

template <class T>
void dropout_forward(Cuda on, const PhiloxStream& stream, Index count, std::uint32_t dropped, double scale,
                     const T* x, std::int32_t* mask, T* y) {
  launch(on, "dropout_forward", dropout_forward_kernel<T>, blocks_for_groups(dropout_mask_words(count) / 2),
         stream, count, are_packed(x, y), dropped, static_cast<Wide<T>>(scale), x, mask, Write<T>{y, false});
}

template <class T>
void dropout_apply(Cuda on, Index count, const std::int32_t* mask, double scale, const T* x, Write<T> y) {
  const bool packed = are_packed(x, y.to);
  launch(on, "dropout_apply", dropout_apply_kernel<T>, blocks_for_packs<kCommonPack<T>>(count, packed), count,
         packed, mask, static_cast<Wide<T>>(scale), x, y);
}

#define INSTANTIATE(T)                                                                             \
  template void dropout_forward(Cuda, const PhiloxStream&, Index, std::uint32_t, double, const T*, \
                                std::int32_t*, T*);                                                \
  template void dropout_apply(Cuda, Index, const std::int32_t*, double, const T*, Write<T>);
TAPEFORMER_CUDA_TYPES(INSTANTIATE)

}  // namespace tapeformer::kernels
