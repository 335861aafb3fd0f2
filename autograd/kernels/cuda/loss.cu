#include <tapeformer/autograd/kernels/cuda/rows.h>
#include <tapeformer/autograd/kernels/loss.h>

namespace tapeformer::kernels {
namespace {

/// Targets that are no class are passed over like ignored ones: what they were is told later.
__device__ bool is_counted(const CrossEntropy& s, std::int32_t target) {
  return target != s.ignored && target >= 0 && target < s.n;
}

/// A team a row.
template <class Team, class T>
__global__ void cross_entropy_forward_kernel(CrossEntropy s, const std::int32_t* targets, const T* logits,
                                             Wide<T>* statistics, double* losses) {
  using W = Wide<T>;
  for_each_row<Team>(s.rows, [&](Index row) {
    const std::int32_t target = targets[row];
    if (!is_counted(s, target)) {
      if (Team::lane() == 0) losses[row] = 0;
      return;
    }
    const T* line = logits + row * s.n;
    const auto value = [&](Index i) { return static_cast<W>(line[i]); };
    const W largest = reduce_row<Team>(s.n, kMinusInfinity<W>, value, Larger{});
    const W total = reduce_row<Team>(
        s.n, W(0), [&](Index i) { return exp(value(i) - largest); }, Sum{});
    W deviations(0);
    if (s.smoothing != 0)
      deviations = reduce_row<Team>(
          s.n, W(0), [&](Index i) { return value(i) - largest; }, Sum{});
    if (Team::lane() != 0) return;
    statistics[2 * row] = largest;
    statistics[2 * row + 1] = total;
    // log(sum exp x) - x_target, and the same for the mean over classes
    const double log_total = log(static_cast<double>(total));
    losses[row] = (1 - s.smoothing) *
                      (log_total - (static_cast<double>(value(target)) - static_cast<double>(largest))) +
                  s.smoothing * (log_total - static_cast<double>(deviations) / static_cast<double>(s.n));
  });
}

/// One block.
template <class T>
__global__ void mean_loss_kernel(Index rows, const double* losses, const std::int32_t* counted, T* loss) {
  const double sum = reduce_row<BlockTeam>(
      rows, 0.0, [&](Index row) { return losses[row]; }, Sum{});
  if (threadIdx.x == 0) *loss = *counted == 0 ? T(0) : static_cast<T>(sum / static_cast<double>(*counted));
}

/// A team a row.
template <class Team, class T>
__global__ void cross_entropy_backward_kernel(CrossEntropy s, const std::int32_t* targets,
                                              const std::int32_t* counted, const T* logits,
                                              const Wide<T>* statistics, const Wide<T>* dloss,
                                              Write<T> dlogits) {
  using W = Wide<T>;
  const double seed = dloss == nullptr ? 1.0 : static_cast<double>(*dloss);
  const W scale = *counted == 0 ? W(0) : static_cast<W>(seed / static_cast<double>(*counted));
  const W uniform = scale * static_cast<W>(s.smoothing / static_cast<double>(s.n));
  const W of_target = scale * static_cast<W>(1 - s.smoothing);
  for_each_row<Team>(s.rows, [&](Index row) {
    const std::int32_t target = targets[row];
    const bool counts = is_counted(s, target);
    const W shift = counts ? statistics[2 * row] : W(0);
    const W factor = counts ? scale / statistics[2 * row + 1] : W(0);
    for (Index i = Team::lane(); i < s.n; i += Team::kThreads) {
      W gradient(0);
      if (counts) {
        gradient = exp(static_cast<W>(logits[row * s.n + i]) - shift) * factor - uniform;
        if (i == target) gradient -= of_target;
      }
      dlogits.put(row * s.n + i, gradient);
    }
  });
}

template <class T>
__global__ void scale_gradient_kernel(Index count, const Wide<T>* factor, const T* gradient, Write<T> dx) {
  const Wide<T> by = *factor;
  for_each_index(count, [&](Index i) { dx.put(i, by * static_cast<Wide<T>>(gradient[i])); });
}

}  // namespace

template <class T>
void cross_entropy_forward(Cuda on, const CrossEntropy& s, const std::int32_t* targets, const T* logits,
                           Wide<T>* statistics, double* losses) {
  with_team(s.rows, s.n, [&](auto team, dim3 blocks) {
    launch(on, "cross_entropy_forward", cross_entropy_forward_kernel<decltype(team), T>, blocks, dim3(kBlock),
           0, s, targets, logits, statistics, losses);
  });
}

template <class T>
void mean_loss(Cuda on, Index rows, const double* losses, const std::int32_t* counted, T* loss) {
  launch(on, "mean_loss", mean_loss_kernel<T>, dim3(1), dim3(kBlock), 0, rows, losses, counted, loss);
}

template <class T>
void cross_entropy_backward(Cuda on, const CrossEntropy& s, const std::int32_t* targets,
                            const std::int32_t* counted, const T* logits, const Wide<T>* statistics,
                            const Wide<T>* dloss, Write<T> dlogits) {
  with_team(s.rows, s.n, [&](auto team, dim3 blocks) {
    launch(on, "cross_entropy_backward", cross_entropy_backward_kernel<decltype(team), T>, blocks,
           dim3(kBlock), 0, s, targets, counted, logits, statistics, dloss, dlogits);
  });
}

template <class T>
void scale_gradient(Cuda on, Index count, const Wide<T>* factor, const T* gradient, Write<T> dx) {
  launch(on, "scale_gradient", scale_gradient_kernel<T>, blocks_for(count), dim3(kBlock), 0, count, factor,
         gradient, dx);
}

#define INSTANTIATE(T)                                                                                      \
  template void cross_entropy_forward(Cuda, const CrossEntropy&, const std::int32_t*, const T*, Wide<T>*,   \
                                      double*);                                                             \
  template void cross_entropy_backward(Cuda, const CrossEntropy&, const std::int32_t*, const std::int32_t*, \
                                       const T*, const Wide<T>*, const Wide<T>*, Write<T>);                 \
  template void scale_gradient(Cuda, Index, const Wide<T>*, const T*, Write<T>);
INSTANTIATE(float)
INSTANTIATE(double)
INSTANTIATE(BFloat16)
#undef INSTANTIATE
template void mean_loss(Cuda, Index, const double*, const std::int32_t*, float*);
template void mean_loss(Cuda, Index, const double*, const std::int32_t*, double*);

}  // namespace tapeformer::kernels
