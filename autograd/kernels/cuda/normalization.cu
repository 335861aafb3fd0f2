#include <tapeformer/autograd/kernels/cuda/rows.h>
#include <tapeformer/autograd/kernels/normalization.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

/// A team a row: its mean, then its variance around it, then the row.
template <class Team, class T>
__global__ void normalize_forward_kernel(Index rows, Index n, bool centred, Wide<T> epsilon, const T* x,
                                         const T* weight, const T* bias, T* y, Wide<T>* mean, Wide<T>* rstd) {
  using W = Wide<T>;
  for_each_row<Team>(rows, [&](Index row) {
    const T* line = x + row * n;
    const auto value = [&](Index i) { return static_cast<W>(line[i]); };
    const W centre = centred ? reduce_row<Team>(n, W(0), value, Sum{}) / static_cast<W>(n) : W(0);
    const auto square = [&](Index i) { return (value(i) - centre) * (value(i) - centre); };
    const W scale = W(1) / sqrt(reduce_row<Team>(n, W(0), square, Sum{}) / static_cast<W>(n) + epsilon);
    if (Team::lane() == 0) {
      if (mean != nullptr) mean[row] = centre;
      rstd[row] = scale;
    }
    for (Index i = Team::lane(); i < n; i += Team::kThreads) {
      const W w = weight != nullptr ? static_cast<W>(weight[i]) : W(1);
      const W b = bias != nullptr ? static_cast<W>(bias[i]) : W(0);
      y[row * n + i] = static_cast<T>((value(i) - centre) * scale * w + b);
    }
  });
}

/// A team a row: rstd * (g - mean(g) - xhat * mean(g * xhat)), g = dy * weight.
template <class Team, class T>
__global__ void normalize_backward_kernel(Index rows, Index n, bool centred, const T* x, const T* weight,
                                          const Wide<T>* mean, const Wide<T>* rstd, const T* dy,
                                          Write<T> dx) {
  using W = Wide<T>;
  for_each_row<Team>(rows, [&](Index row) {
    const W centre = mean != nullptr ? mean[row] : W(0), scale = rstd[row];
    const auto normal = [&](Index i) { return (static_cast<W>(x[row * n + i]) - centre) * scale; };
    const auto gradient = [&](Index i) {
      const W d = static_cast<W>(dy[row * n + i]);
      return weight != nullptr ? d * static_cast<W>(weight[i]) : d;
    };
    const W mean_gradient = centred ? reduce_row<Team>(n, W(0), gradient, Sum{}) / static_cast<W>(n) : W(0);
    const auto product = [&](Index i) { return gradient(i) * normal(i); };
    const W mean_product = reduce_row<Team>(n, W(0), product, Sum{}) / static_cast<W>(n);
    for (Index i = Team::lane(); i < n; i += Team::kThreads)
      dx.put(row * n + i, scale * (gradient(i) - mean_gradient - normal(i) * mean_product));
  });
}

constexpr int kColumns = kWarp, kRowThreads = kBlock / kColumns;
constexpr Index kPartRows = 128;  // so many rows are worth a part, up to kMostParts
constexpr Index kMostParts = 64;

/// A block for a strip of columns and a part of the rows: partials[part] gets the sums of dy * xhat, then of
/// dy. Each warp sums every kRowThreads-th row; the first adds up what they found.
template <class T>
__global__ void column_parts_kernel(Index rows, Index n, const T* x, const Wide<T>* mean, const Wide<T>* rstd,
                                    const T* dy, Wide<T>* partials) {
  using W = Wide<T>;
  __shared__ W products[kRowThreads][kColumns];
  __shared__ W sums[kRowThreads][kColumns];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const Index column = Index{blockIdx.x} * kColumns + lane, part = blockIdx.y, parts = gridDim.y;
  W product(0), sum(0);
  for (Index row = rows * part / parts + warp; column < n && row < rows * (part + 1) / parts;
       row += kRowThreads) {
    const W centre = mean != nullptr ? mean[row] : W(0), d = static_cast<W>(dy[row * n + column]);
    product += d * ((static_cast<W>(x[row * n + column]) - centre) * rstd[row]);
    sum += d;
  }
  products[warp][lane] = product;
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= n) return;
  for (int other = 1; other < kRowThreads; ++other) {
    product += products[other][lane];
    sum += sums[other][lane];
  }
  partials[part * 4 * n + column] = product;
  partials[part * 4 * n + n + column] = sum;
}

template <class W>
__global__ void column_sums_kernel(Index n, Index parts, const W* partials, Write<W> dweight,
                                   Write<W> dbias) {
  for_each_index(n, [&](Index i) {
    W product(0), sum(0);
    for (Index part = 0; part < parts; ++part) {
      product += partials[part * 4 * n + i];
      sum += partials[part * 4 * n + n + i];
    }
    if (dweight) dweight.put(i, product);
    if (dbias) dbias.put(i, sum);
  });
}

}  // namespace

template <class T>
void normalize_forward(Cuda on, Index rows, Index n, bool centred, Wide<T> epsilon, const T* x,
                       const T* weight, const T* bias, T* y, Wide<T>* mean, Wide<T>* rstd) {
  with_team(rows, n, [&](auto team, dim3 blocks) {
    launch(on, "normalize_forward", normalize_forward_kernel<decltype(team), T>, blocks, dim3(kBlock), 0,
           rows, n, centred, epsilon, x, weight, bias, y, mean, rstd);
  });
}

Index normalize_parts(Cuda, Index rows, Index) {
  return std::clamp<Index>((rows + kPartRows - 1) / kPartRows, 1, kMostParts);
}

template <class T>
void normalize_backward(Cuda on, Index rows, Index n, bool centred, const T* x, const T* weight,
                        const Wide<T>* mean, const Wide<T>* rstd, const T* dy, Wide<T>* partials, Write<T> dx,
                        Write<Wide<T>> dweight, Write<Wide<T>> dbias) {
  if (dx) {
    with_team(rows, n, [&](auto team, dim3 blocks) {
      launch(on, "normalize_backward", normalize_backward_kernel<decltype(team), T>, blocks, dim3(kBlock), 0,
             rows, n, centred, x, weight, mean, rstd, dy, dx);
    });
  }
  if (!dweight && !dbias) return;
  const Index parts = normalize_parts(on, rows, n);
  const dim3 grid(static_cast<unsigned>((n + kColumns - 1) / kColumns), static_cast<unsigned>(parts));
  launch(on, "normalize_backward", column_parts_kernel<T>, grid, dim3(kColumns, kRowThreads), 0, rows, n, x,
         mean, rstd, dy, partials);
  launch(on, "normalize_backward", column_sums_kernel<Wide<T>>, blocks_for(n), dim3(kBlock), 0, n, parts,
         partials, dweight, dbias);
}

#define INSTANTIATE(T)                                                                                 \
  template void normalize_forward(Cuda, Index, Index, bool, Wide<T>, const T*, const T*, const T*, T*, \
                                  Wide<T>*, Wide<T>*);                                                 \
  template void normalize_backward(Cuda, Index, Index, bool, const T*, const T*, const Wide<T>*,       \
                                   const Wide<T>*, const T*, Wide<T>*, Write<T>, Write<Wide<T>>,       \
                                   Write<Wide<T>>);
INSTANTIATE(float)
INSTANTIATE(double)
INSTANTIATE(BFloat16)
#undef INSTANTIATE

}  // namespace tapeformer::kernels
