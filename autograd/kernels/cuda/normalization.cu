#include <tapeformer/autograd/kernels/cuda/rows.h>
#include <tapeformer/autograd/kernels/normalization.h>

namespace tapeformer::kernels {
namespace {

/// x plus the addend, which is rounded as if it were stored first, not fused with the sum.
template <class T>
__device__ T joined(const Branch<T>& branch, bool kept, T x, T added) {
  using W = Wide<T>;
  if (branch.mask != nullptr)
    added = static_cast<T>(kept ? rounded_product(static_cast<W>(added), branch.scale) : W(0));
  return static_cast<T>(static_cast<W>(x) + static_cast<W>(added));
}

/// One team per row, which its threads hold: they add the branch, and find the mean, the variance around it,
/// and the result.
template <class Team, class T>
__global__ void __launch_bounds__(kBlock)
    normalize_held_kernel(Index rows, int n, bool centred, Wide<T> epsilon, const T* x, Branch<T> branch,
                          const T* weight, const T* bias, T* y, Wide<T>* mean, Wide<T>* rstd) {
  using W = Wide<T>;
  constexpr int kSize = kPackSize<T>;
  for_each_row<Team>(rows, [&](Index row) {
    const Index start = row * n;
    Pack<T> held[Team::kPacks];
    load_row<Team>(n, x + start, held);
    if (branch.from != nullptr) {
      Pack<T> added[Team::kPacks];
      load_row<Team>(n, branch.from + start, added);
      for_each_pack<Team, T>(n, [&](int k, int i) {
        const unsigned kept = mask_bits(branch.mask, start + i);
#pragma unroll
        for (int j = 0; j < kSize; ++j)
          held[k].of[j] = joined(branch, (kept >> j & 1u) != 0, held[k].of[j], added[k].of[j]);
        store_pack<kSize>(branch.sum + start + i, held[k]);
      });
    }
    W centre(0), squares(0);
    if (centred) {
      for_each_held<Team, T>(n, [&](int k, int j, int) { centre += static_cast<W>(held[k].of[j]); });
      centre = Team::reduce(centre, W(0), std::plus<>{}) / static_cast<W>(n);
    }
    for_each_held<Team, T>(n, [&](int k, int j, int) {
      const W deviation = static_cast<W>(held[k].of[j]) - centre;
      squares += deviation * deviation;
    });
    const W scale = W(1) / sqrt(Team::reduce(squares, W(0), std::plus<>{}) / static_cast<W>(n) + epsilon);
    if (Team::lane() == 0) {
      if (mean != nullptr) mean[row] = centre;
      rstd[row] = scale;
    }
    for_each_pack<Team, T>(n, [&](int k, int i) {
      Pack<T> w, b;
      if (weight != nullptr) w = load_pack<kSize>(weight + i);
      if (bias != nullptr) b = load_pack<kSize>(bias + i);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        W value = (static_cast<W>(held[k].of[j]) - centre) * scale;
        if (weight != nullptr) value *= static_cast<W>(w.of[j]);
        if (bias != nullptr) value += static_cast<W>(b.of[j]);
        held[k].of[j] = static_cast<T>(value);
      }
      store_pack<kSize>(y + start + i, held[k]);
    });
  });
}

/// The forward kernel for rows of any width and alignment.
template <class Team, class T>
__global__ void normalize_forward_kernel(Index rows, Index n, bool centred, Wide<T> epsilon, const T* x,
                                         Branch<T> branch, const T* weight, const T* bias, T* y,
                                         Wide<T>* mean, Wide<T>* rstd) {
  using W = Wide<T>;
  for_each_row<Team>(rows, [&](Index row) {
    const Index start = row * n;
    const T* line = x + start;
    if (branch.from != nullptr) {  // a thread later reads what it wrote itself
      for (Index i = Team::lane(); i < n; i += Team::kThreads) {
        const bool kept = (mask_bits(branch.mask, start + i) & 1u) != 0;
        branch.sum[start + i] = joined(branch, kept, line[i], branch.from[start + i]);
      }
      line = branch.sum + start;
    }
    const auto value = [&](Index i) { return static_cast<W>(line[i]); };
    const W centre = centred ? reduce_row<Team>(n, W(0), value, std::plus<>{}) / static_cast<W>(n) : W(0);
    const auto square = [&](Index i) { return (value(i) - centre) * (value(i) - centre); };
    const W scale =
        W(1) / sqrt(reduce_row<Team>(n, W(0), square, std::plus<>{}) / static_cast<W>(n) + epsilon);
    if (Team::lane() == 0) {
      if (mean != nullptr) mean[row] = centre;
      rstd[row] = scale;
    }
    for (Index i = Team::lane(); i < n; i += Team::kThreads) {
      const W w = weight != nullptr ? static_cast<W>(weight[i]) : W(1);
      const W b = bias != nullptr ? static_cast<W>(bias[i]) : W(0);
      y[start + i] = static_cast<T>((value(i) - centre) * scale * w + b);
    }
  });
}

}  // namespace

template <class T>
void normalize_forward(Cuda on, Index rows, Index n, bool centred, double epsilon, const T* x,
                       const Branch<T>& branch, const T* weight, const T* bias, T* y, Wide<T>* mean,
                       Wide<T>* rstd) {
  const bool packed = are_packed(x, branch.from, branch.sum, weight, bias, y);
  const bool held = with_holding_team<T>(n, packed, [&](auto team) {
    using Team = decltype(team);
    launch(on, "normalize_forward", normalize_held_kernel<Team, T>, team_blocks<Team>(rows), rows, n, centred,
           epsilon, x, branch, weight, bias, y, mean, rstd);
  });
  if (held) return;
  with_team(rows, n, [&](auto team, Index blocks) {
    launch(on, "normalize_forward", normalize_forward_kernel<decltype(team), T>, blocks, rows, n, centred,
           epsilon, x, branch, weight, bias, y, mean, rstd);
  });
}

TAPEFORMER_CUDA_KERNEL(normalize_forward);

}  // namespace tapeformer::kernels
