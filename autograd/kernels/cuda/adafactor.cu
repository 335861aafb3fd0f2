#include <tapeformer/autograd/kernels/adafactor.h>
#include <tapeformer/autograd/kernels/cuda/device.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

constexpr Index kRowsOfPart = 128;  // at least, of a matrix whose columns are summed in parts
constexpr Index kMostParts = 64, kMostBlocks = 1024;

template <class T>
__device__ double square_of(T x) {
  return static_cast<double>(x) * static_cast<double>(x);
}

/// variance = variance + weight (mean - variance), where `squares` are those of `count` gradients.
template <class T>
__device__ void update_variance(T& variance, const AdafactorStep& step, double factor, double squares,
                                Index count) {
  const T mean = static_cast<T>(squares * factor * factor / static_cast<double>(count));
  variance += static_cast<T>(step.weight) * (mean - variance);
}

/// A block for each row.
template <class T>
__global__ void rows_kernel(AdafactorTensor x, AdafactorStep step, const double* factor) {
  const T* row = static_cast<const T*>(x.gradient) + blockIdx.x * x.columns;
  double sum = 0;
  for (Index i = threadIdx.x; i < x.columns; i += blockDim.x) sum += square_of(row[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0 && !isnan(*factor))
    update_variance(static_cast<T*>(x.row_variance)[blockIdx.x], step, *factor, sum, x.columns);
}

/// The squares of each column in each of `parts` parts of the rows: sums [matrices, parts, columns]. A block
/// takes kWarp columns of a part.
template <class T>
__global__ void column_parts_kernel(AdafactorTensor x, Index parts, double* sums) {
  __shared__ double of_threads[kBlock];
  const Index strips = (x.columns + kWarp - 1) / kWarp, at = blockIdx.x / strips;
  const Index matrix = at / parts, part = at % parts;
  const Index column = blockIdx.x % strips * kWarp + threadIdx.x % kWarp;
  const Index begin = x.rows * part / parts, end = x.rows * (part + 1) / parts;
  const T* gradient = static_cast<const T*>(x.gradient) + matrix * x.rows * x.columns;
  double sum = 0;
  for (Index row = begin + threadIdx.x / kWarp; column < x.columns && row < end; row += kBlock / kWarp)
    sum += square_of(gradient[row * x.columns + column]);
  of_threads[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x < kWarp && column < x.columns) {
    for (int i = 1; i < kBlock / kWarp; ++i) sum += of_threads[i * kWarp + threadIdx.x];
    sums[at * x.columns + column] = sum;
  }
}

template <class T>
__global__ void columns_kernel(AdafactorTensor x, AdafactorStep step, const double* factor, Index parts,
                               const double* sums) {
  if (isnan(*factor)) return;
  for_each_index(x.matrices * x.columns, [&](Index i) {
    const double* of_parts = sums + i / x.columns * parts * x.columns + i % x.columns;
    double sum = 0;
    for (Index part = 0; part < parts; ++part) sum += of_parts[part * x.columns];
    update_variance(static_cast<T*>(x.column_variance)[i], step, *factor, sum, x.rows);
  });
}

/// The mean variance of each matrix' rows; a block for each.
template <class T>
__global__ void means_kernel(AdafactorTensor x, double* means) {
  const T* rows = static_cast<const T*>(x.row_variance) + blockIdx.x * x.rows;
  double sum = 0;
  for (Index i = threadIdx.x; i < x.rows; i += blockDim.x) sum += static_cast<double>(rows[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) means[blockIdx.x] = sum / static_cast<double>(x.rows);
}

template <class T>
__global__ void elements_kernel(AdafactorTensor x, AdafactorStep step, const double* factor) {
  if (isnan(*factor)) return;
  const T* gradient = static_cast<const T*>(x.gradient);
  for_each_index(x.columns, [&](Index i) {
    update_variance(static_cast<T*>(x.variance)[i], step, *factor, square_of(gradient[i]), 1);
  });
}

/// Calls use(element, its update) for this thread's elements. `means` are not read for a vector.
template <class T, class Use>
__device__ void for_each_update(const AdafactorTensor& x, const AdafactorStep& step, double factor,
                                const double* means, Use&& use) {
  const T* gradient = static_cast<const T*>(x.gradient);
  const T scale = static_cast<T>(factor);
  for (Index i = blockIdx.x; i < x.all_rows(); i += gridDim.x) {
    const double mean = x.variance != nullptr ? 0 : means[i / x.rows];
    const AdafactorRow<T> row = adafactor_row<T>(x, step.epsilon, i, mean);
    for (Index c = threadIdx.x; c < x.columns; c += blockDim.x)
      use(i * x.columns + c, row.update(gradient[i * x.columns + c] * scale, c));
  }
}

/// The squares of values and of updates that each block has seen: sums [2, blocks].
template <class T>
__global__ void squares_kernel(AdafactorTensor x, AdafactorStep step, const double* factor,
                               const double* means, double* sums) {
  const T* value = static_cast<const T*>(x.value);
  double of_values = 0, of_updates = 0;
  for_each_update<T>(x, step, *factor, means, [&](Index i, T u) {
    of_values += square_of(value[i]);
    of_updates += square_of(u);
  });
  of_values = block_sum(of_values);
  of_updates = block_sum(of_updates);
  if (threadIdx.x != 0) return;
  sums[blockIdx.x] = of_values;
  sums[gridDim.x + blockIdx.x] = of_updates;
}

/// Runs as one block.
__global__ void size_kernel(AdafactorStep step, Index count, Index blocks, const double* sums, double* size) {
  double of_values = 0, of_updates = 0;
  for (Index i = threadIdx.x; i < blocks; i += blockDim.x) {
    of_values += sums[i];
    of_updates += sums[blocks + i];
  }
  of_values = block_sum(of_values);
  of_updates = block_sum(of_updates);
  if (threadIdx.x == 0) *size = step.size(of_values, of_updates, count);
}

template <class T>
__global__ void apply_kernel(AdafactorTensor x, AdafactorStep step, const double* factor, const double* means,
                             const double* size) {
  if (isnan(*factor)) return;
  const T keep = static_cast<T>(1 - step.learning_rate * step.weight_decay), by = static_cast<T>(*size);
  T* value = static_cast<T*>(x.value);
  for_each_update<T>(x, step, *factor, means, [&](Index i, T u) {
    value[i] = value[i] * keep - by * u;
    if (x.shadow != nullptr) x.shadow[i] = BFloat16(value[i]);
  });
}

dim3 grid_of(Index blocks) { return dim3(static_cast<unsigned>(blocks)); }

template <class T>
void update_factors(Cuda on, const AdafactorTensor& x, const AdafactorStep& step, const double* factor,
                    double* means) {
  launch(on, "adafactor_rows", rows_kernel<T>, grid_of(x.all_rows()), dim3(kBlock), 0, x, step, factor);
  launch(on, "adafactor_means", means_kernel<T>, grid_of(x.matrices), dim3(kBlock), 0, x, means);
  const Index parts = std::clamp<Index>(x.rows / kRowsOfPart, 1, kMostParts);
  const Scratch<double> sums(on, x.matrices * parts * x.columns);
  const Index strips = (x.columns + kWarp - 1) / kWarp;
  launch(on, "adafactor_column_parts", column_parts_kernel<T>, grid_of(x.matrices * parts * strips),
         dim3(kBlock), 0, x, parts, sums.data());
  launch(on, "adafactor_columns", columns_kernel<T>, blocks_for(x.matrices * x.columns), dim3(kBlock), 0, x,
         step, factor, parts, sums.data());
}

}  // namespace

template <class T>
void adafactor_step(Cuda on, const AdafactorTensor& x, const AdafactorStep& step, const double* factor) {
  const Index count = x.all_rows() * x.columns;
  if (count == 0) return;
  const Index blocks = std::min(x.all_rows(), kMostBlocks);
  const Scratch<double> means(on, x.matrices), sums(on, 2 * blocks), size(on, 1);
  if (x.variance != nullptr) {
    launch(on, "adafactor_elements", elements_kernel<T>, blocks_for(count), dim3(kBlock), 0, x, step, factor);
  } else {
    update_factors<T>(on, x, step, factor, means.data());
  }
  launch(on, "adafactor_squares", squares_kernel<T>, grid_of(blocks), dim3(kBlock), 0, x, step, factor,
         means.data(), sums.data());
  launch(on, "adafactor_size", size_kernel, dim3(1), dim3(kBlock), 0, step, count, blocks, sums.data(),
         size.data());
  launch(on, "adafactor_apply", apply_kernel<T>, grid_of(blocks), dim3(kBlock), 0, x, step, factor,
         means.data(), size.data());
}

#define INSTANTIATE(T) \
  template void adafactor_step<T>(Cuda, const AdafactorTensor&, const AdafactorStep&, const double*);
TAPEFORMER_CPU_TYPES(INSTANTIATE)

}  // namespace tapeformer::kernels
