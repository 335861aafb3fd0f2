#include <tapeformer/autograd/kernels/cuda/rows.h>
#include <tapeformer/autograd/kernels/softmax.h>

namespace tapeformer::kernels {
namespace {

/// What is subtracted before exp, and the sum of the exponentials. A row of minus infinities only has shift 0
/// and sum 0 instead of NaNs.
template <class T>
struct RowSum {
  T shift, total;
};
template <class Team, class T>
__device__ RowSum<Wide<T>> row_sum(Index n, const T* x) {
  using W = Wide<T>;
  const W largest = reduce_row<Team>(
      n, kMinusInfinity<W>, [&](Index i) { return static_cast<W>(x[i]); }, Larger{});
  const W shift = largest == kMinusInfinity<W> ? W(0) : largest;
  return {shift, reduce_row<Team>(
                     n, W(0), [&](Index i) { return exp(static_cast<W>(x[i]) - shift); }, Sum{})};
}

template <class Team, class T>
__global__ void softmax_forward_kernel(Index rows, Index n, const T* x, T* y) {
  using W = Wide<T>;
  for_each_row<Team>(rows, [&](Index row) {
    const T* px = x + row * n;
    const RowSum<W> sum = row_sum<Team>(n, px);
    const W scale = sum.total == W(0) ? W(0) : W(1) / sum.total;
    for (Index i = Team::lane(); i < n; i += Team::kThreads)
      y[row * n + i] = static_cast<T>(exp(static_cast<W>(px[i]) - sum.shift) * scale);
  });
}

template <class Team, class T>
__global__ void softmax_backward_kernel(Index rows, Index n, const T* y, const T* dy, Write<T> dx) {
  using W = Wide<T>;
  for_each_row<Team>(rows, [&](Index row) {
    const T *py = y + row * n, *pd = dy + row * n;
    const W total = reduce_row<Team>(
        n, W(0), [&](Index i) { return static_cast<W>(py[i]) * static_cast<W>(pd[i]); }, Sum{});
    for (Index i = Team::lane(); i < n; i += Team::kThreads)
      dx.put(row * n + i, static_cast<W>(py[i]) * (static_cast<W>(pd[i]) - total));
  });
}

template <class Team, class T>
__global__ void log_softmax_forward_kernel(Index rows, Index n, const T* x, T* y) {
  using W = Wide<T>;
  for_each_row<Team>(rows, [&](Index row) {
    const T* px = x + row * n;
    const RowSum<W> sum = row_sum<Team>(n, px);
    const W log_total = sum.total == W(0) ? W(0) : log(sum.total);
    for (Index i = Team::lane(); i < n; i += Team::kThreads)
      y[row * n + i] = static_cast<T>((static_cast<W>(px[i]) - sum.shift) - log_total);
  });
}

template <class Team, class T>
__global__ void log_softmax_backward_kernel(Index rows, Index n, const T* y, const T* dy, Write<T> dx) {
  using W = Wide<T>;
  for_each_row<Team>(rows, [&](Index row) {
    const T *py = y + row * n, *pd = dy + row * n;
    const W total = reduce_row<Team>(
        n, W(0), [&](Index i) { return static_cast<W>(pd[i]); }, Sum{});
    for (Index i = Team::lane(); i < n; i += Team::kThreads)
      dx.put(row * n + i, static_cast<W>(pd[i]) - exp(static_cast<W>(py[i])) * total);
  });
}

}  // namespace

template <class T>
void softmax_forward(Cuda on, Index rows, Index n, const T* x, T* y) {
  with_team(rows, n, [&](auto team, dim3 blocks) {
    launch(on, "softmax_forward", softmax_forward_kernel<decltype(team), T>, blocks, dim3(kBlock), 0, rows, n,
           x, y);
  });
}

template <class T>
void softmax_backward(Cuda on, Index rows, Index n, const T* y, const T* dy, Write<T> dx) {
  with_team(rows, n, [&](auto team, dim3 blocks) {
    launch(on, "softmax_backward", softmax_backward_kernel<decltype(team), T>, blocks, dim3(kBlock), 0, rows,
           n, y, dy, dx);
  });
}

template <class T>
void log_softmax_forward(Cuda on, Index rows, Index n, const T* x, T* y) {
  with_team(rows, n, [&](auto team, dim3 blocks) {
    launch(on, "log_softmax_forward", log_softmax_forward_kernel<decltype(team), T>, blocks, dim3(kBlock), 0,
           rows, n, x, y);
  });
}

template <class T>
void log_softmax_backward(Cuda on, Index rows, Index n, const T* y, const T* dy, Write<T> dx) {
  with_team(rows, n, [&](auto team, dim3 blocks) {
    launch(on, "log_softmax_backward", log_softmax_backward_kernel<decltype(team), T>, blocks, dim3(kBlock),
           0, rows, n, y, dy, dx);
  });
}

#define INSTANTIATE(T)                                                              \
  template void softmax_forward(Cuda, Index, Index, const T*, T*);                  \
  template void softmax_backward(Cuda, Index, Index, const T*, const T*, Write<T>); \
  template void log_softmax_forward(Cuda, Index, Index, const T*, T*);              \
  template void log_softmax_backward(Cuda, Index, Index, const T*, const T*, Write<T>);
INSTANTIATE(float)
INSTANTIATE(double)
INSTANTIATE(BFloat16)
#undef INSTANTIATE

}  // namespace tapeformer::kernels
