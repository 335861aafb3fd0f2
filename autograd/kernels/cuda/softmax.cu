#include <tapeformer/autograd/kernels/cuda/rows.h>
#include <tapeformer/autograd/kernels/softmax.h>

namespace tapeformer::kernels {
namespace {

/// The number subtracted before exp in a row with this maximum: 0 in a row of minus infinities, whose
/// exponentials are then 0 instead of NaN.
template <class W>
__device__ W shift_of(W largest) {
  return largest == kMinusInfinity<W> ? W(0) : largest;
}
/// The factor of exp(x - shift), or for the logarithm the number that is subtracted from x - shift; `total`
/// is the sum of the exponentials.
template <class W>
__device__ W scale_of(W total) {
  return total == W(0) ? W(0) : W(1) / total;
}
template <class W>
__device__ W log_total_of(W total) {
  return total == W(0) ? W(0) : log(total);
}

/// Softmax, or its logarithm: one team per row, which its threads hold.
template <class Team, class T, bool is_log>
__global__ void __launch_bounds__(kBlock) softmax_held_kernel(Index rows, int n, const T* x, T* y) {
  using W = Wide<T>;
  for_each_row<Team>(rows, [&](Index row) {
    Pack<T> held[Team::kPacks];
    load_row<Team>(n, x + row * n, held);
    W largest = kMinusInfinity<W>, total(0);
    for_each_held<Team, T>(
        n, [&](int k, int j, int) { largest = Larger{}(largest, static_cast<W>(held[k].of[j])); });
    const W shift = shift_of(Team::reduce(largest, kMinusInfinity<W>, Larger{}));
    W values[Team::kPacks][kPackSize<T>];
    for_each_held<Team, T>(n, [&](int k, int j, int) {
      const W value = static_cast<W>(held[k].of[j]) - shift, power = exp(value);
      values[k][j] = is_log ? value : power;
      total += power;
    });
    total = Team::reduce(total, W(0), std::plus<>{});
    const W result = is_log ? log_total_of(total) : scale_of(total);
    for_each_held<Team, T>(n, [&](int k, int j, int) {
      held[k].of[j] = static_cast<T>(is_log ? values[k][j] - result : values[k][j] * result);
    });
    store_row<Team>(n, y + row * n, held);
  });
}

/// dx = y * (dy - sum(y * dy)); for the logarithm, dx = dy - exp(y) * sum(dy).
template <class Team, class T, bool is_log>
__global__ void __launch_bounds__(kBlock)
    softmax_backward_held_kernel(Index rows, int n, const T* y, const T* dy, Write<T> dx) {
  using W = Wide<T>;
  for_each_row<Team>(rows, [&](Index row) {
    const Index start = row * n;
    Pack<T> held[Team::kPacks], gradients[Team::kPacks], before[Team::kPacks];
    load_row<Team>(n, y + start, held);
    load_row<Team>(n, dy + start, gradients);
    if (dx.add) load_row<Team>(n, dx.to + start, before);
    W total(0);
    for_each_held<Team, T>(n, [&](int k, int j, int) {
      const W d = static_cast<W>(gradients[k].of[j]);
      total += is_log ? d : static_cast<W>(held[k].of[j]) * d;
    });
    total = Team::reduce(total, W(0), std::plus<>{});
    for_each_held<Team, T>(n, [&](int k, int j, int) {
      const W d = static_cast<W>(gradients[k].of[j]), result = static_cast<W>(held[k].of[j]);
      const W value = is_log ? d - exp(result) * total : result * (d - total);
      held[k].of[j] = static_cast<T>(dx.add ? static_cast<W>(before[k].of[j]) + value : value);
    });
    store_row<Team>(n, dx.to + start, held);
  });
}

/// For rows that are not held, the shift and the sum, in one pass: each thread keeps the sum for its largest
/// value so far.
template <class W>
struct RowSum {
  W shift, total;
};
template <class Team, class T>
__device__ RowSum<Wide<T>> row_sum(Index n, const T* x) {
  using W = Wide<T>;
  W largest = kMinusInfinity<W>, total(0);
  for (Index i = Team::lane(); i < n; i += Team::kThreads) {
    const W value = static_cast<W>(x[i]), next = Larger{}(largest, value);
    if (next == largest) {
      total += exp(value - shift_of(next));
    } else {  // also for a NaN
      total = total * exp(largest - next) + exp(value - next);
      largest = next;
    }
  }
  const W shift = shift_of(Team::reduce(largest, kMinusInfinity<W>, Larger{}));
  return {shift, Team::reduce(total * exp(largest - shift), W(0), std::plus<>{})};
}

template <class Team, class T, bool is_log>
__global__ void softmax_forward_kernel(Index rows, Index n, const T* x, T* y) {
  using W = Wide<T>;
  for_each_row<Team>(rows, [&](Index row) {
    const T* px = x + row * n;
    const RowSum<W> sum = row_sum<Team>(n, px);
    const W result = is_log ? log_total_of(sum.total) : scale_of(sum.total);
    for (Index i = Team::lane(); i < n; i += Team::kThreads) {
      const W value = static_cast<W>(px[i]) - sum.shift;
      y[row * n + i] = static_cast<T>(is_log ? value - result : exp(value) * result);
    }
  });
}

template <class Team, class T, bool is_log>
__global__ void softmax_backward_kernel(Index rows, Index n, const T* y, const T* dy, Write<T> dx) {
  using W = Wide<T>;
  for_each_row<Team>(rows, [&](Index row) {
    const T *py = y + row * n, *pd = dy + row * n;
    const auto term = [&](Index i) {
      const W d = static_cast<W>(pd[i]);
      return is_log ? d : static_cast<W>(py[i]) * d;
    };
    const W total = reduce_row<Team>(n, W(0), term, std::plus<>{});
    for (Index i = Team::lane(); i < n; i += Team::kThreads) {
      const W d = static_cast<W>(pd[i]), result = static_cast<W>(py[i]);
      dx.put(row * n + i, is_log ? d - exp(result) * total : result * (d - total));
    }
  });
}

template <bool is_log, class T>
void forward(Cuda on, const char* name, Index rows, Index n, const T* x, T* y) {
  const bool held = with_holding_team<T>(n, are_packed(x, y), [&](auto team) {
    using Team = decltype(team);
    launch(on, name, softmax_held_kernel<Team, T, is_log>, team_blocks<Team>(rows), rows, n, x, y);
  });
  if (held) return;
  with_team(rows, n, [&](auto team, Index blocks) {
    launch(on, name, softmax_forward_kernel<decltype(team), T, is_log>, blocks, rows, n, x, y);
  });
}

template <bool is_log, class T>
void backward(Cuda on, const char* name, Index rows, Index n, const T* y, const T* dy, Write<T> dx) {
  const bool held = with_holding_team<T>(n, are_packed(y, dy, dx.to), [&](auto team) {
    using Team = decltype(team);
    launch(on, name, softmax_backward_held_kernel<Team, T, is_log>, team_blocks<Team>(rows), rows, n, y, dy,
           dx);
  });
  if (held) return;
  with_team(rows, n, [&](auto team, Index blocks) {
    launch(on, name, softmax_backward_kernel<decltype(team), T, is_log>, blocks, rows, n, y, dy, dx);
  });
}

}  // namespace

template <class T>
void softmax_forward(Cuda on, bool is_log, Index rows, Index n, const T* x, T* y) {
  if (is_log) return forward<true>(on, "log_softmax_forward", rows, n, x, y);
  forward<false>(on, "softmax_forward", rows, n, x, y);
}

template <class T>
void softmax_backward(Cuda on, bool is_log, Index rows, Index n, const T* y, const T* dy, Write<T> dx) {
  if (!dx) return;
  if (is_log) return backward<true>(on, "log_softmax_backward", rows, n, y, dy, dx);
  backward<false>(on, "softmax_backward", rows, n, y, dy, dx);
}

TAPEFORMER_CUDA_KERNEL(softmax_forward);
TAPEFORMER_CUDA_KERNEL(softmax_backward);

}  // namespace tapeformer::kernels
