#include <tapeformer/autograd/kernels/cuda/attention/paths.h>
#include <tapeformer/autograd/kernels/cuda/rows.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>
#include <tapeformer/autograd/kernels/cuda/tensor_core.h>
#include <tapeformer/autograd/kernels/loss.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

/// Threads for rows so long that one row keeps an SM busy.
struct LargeTeam : BlockTeam {
  static constexpr int kThreads = 512;
};
constexpr Index kLargeRow = 8192, kLargeBlocks = 4 * kMaxRowBlocks;  // a short wait for the last ones
template <class Team>
constexpr int threads_of(Team) {
  return Team::kThreads > kBlock ? Team::kThreads : kBlock;
}
/// The blocks of a multiprocessor, 64 registers to a thread: one computes while another one's row arrives.
template <class Team, class T>
constexpr int kLeastBlocks = sizeof(T) == 8 ? 1 : 1024 / threads_of(Team{});
constexpr std::size_t kOfReductions = 1024;  // bytes of a block's shared memory, at most

/// Targets that are not a class are skipped like ignored ones; they are reported later.
__device__ bool is_counted(const CrossEntropy& s, std::int32_t target) {
  return target != s.ignored && target >= 0 && target < s.n;
}

/// exp(x) is exponential(x * kScale), for x <= 0. With bf16 logits an error of two units in f32's last place
/// does not matter.
template <class T>
constexpr Wide<T> kScale = sizeof(T) == 2 ? kLog2E : 1;
template <class T>
__device__ Wide<T> exponential(Wide<T> scaled) {
  if constexpr (sizeof(T) == 2) {
    return exp2_approx(scaled);
  } else {
    return exp(scaled);
  }
}
/// exp(x) over the number whose scaled logarithm is `shift`.
template <class T>
__device__ Wide<T> shifted_exponential(Wide<T> x, Wide<T> shift) {
  return exponential<T>(fma(x, kScale<T>, -shift));
}

/// The logit x as the loss sees it.
template <class W>
__device__ W capped(const CrossEntropy& s, W x) {
  if (!(s.softcap > 0)) return x;
  const auto cap = static_cast<W>(s.softcap);
  return cap * tanh(x / cap);
}
/// The factor of x's gradient that belongs to the capped logit y.
template <class W>
__device__ W slope_of_cap(const CrossEntropy& s, W y) {
  if (!(s.softcap > 0)) return W(1);
  const W share = y / static_cast<W>(s.softcap);
  return W(1) - share * share;
}

template <int N>
using Count = std::integral_constant<int, N>;

/// Calls use(i, count) for this thread's pieces of a row, numbers i to i + count - 1: packs of 16 aligned
/// bytes, and single numbers before the first and after the last. Without `shares`, which says that the
/// output is aligned alike, all are single. A thread always gets the same pieces.
template <class Team, class T, class Use>
__device__ void for_each_piece(const T* row, Index n, bool shares, Use&& use) {
  constexpr int kPack = kPackSize<T>;
  const auto behind = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));
  const Index before = shares ? (kPack - behind) % kPack : n, head = before < n ? before : n;
  const Index packs = (n - head) / kPack, tail = head + packs * kPack;
  for (Index i = Team::lane(); i < head; i += Team::kThreads) use(i, Count<1>{});
  for (Index i = Team::lane(); i < packs; i += Team::kThreads) use(head + i * kPack, Count<kPack>{});
  if (Team::lane() < n - tail) use(tail + Team::lane(), Count<1>{});
}

template <class T>
struct RowSums {
  Wide<T> shift, total;  // the maximum, scaled; the sum of exponentials shifted by it
  Wide<T> deviations;    // the sum of x - x_target, when targets are smoothed; all of capped logits

  /// log(sum exp x) - x_target, of which `smoothing` is replaced by the mean over all classes as targets.
  __device__ double loss(const CrossEntropy& s, Wide<T> of_target) const {
    const double largest = static_cast<double>(shift) / static_cast<double>(kScale<T>);
    const double own = log(static_cast<double>(total)) + (largest - static_cast<double>(of_target));
    // A target of minus infinity has no deviations from it that are numbers.
    if (s.smoothing == 0 || own > std::numeric_limits<double>::max()) return own;
    return own - s.smoothing * (static_cast<double>(deviations) / static_cast<double>(s.n));
  }
};

/// One pass over the pieces that `read` returns: sums are corrected for every larger maximum. A NaN stays in
/// `total`.
template <class Team, class T, class Read>
__device__ RowSums<T> sums_of_row(const CrossEntropy& s, const T* line, Wide<T> of_target, Read&& read) {
  using W = Wide<T>;
  constexpr W kLowest =
      std::numeric_limits<W>::lowest();  // finite, so that minus infinity less this is not NaN
  RowSums<T> own{kLowest, W(0), W(0)};
  const bool smooths = s.smoothing != 0;
  for_each_piece<Team>(line, s.n, true, [&](Index i, auto count) {
    constexpr int kCount = decltype(count)::value;
    Pack<W, kCount> x = widened(read(i, count));
    for (int j = 0; j < kCount; ++j) x.of[j] = capped(s, x.of[j]);
    W largest = x.of[0];
    for (int j = 1; j < kCount; ++j) largest = max(largest, x.of[j]);
    const W shift = max(own.shift, largest * kScale<T>);
    own.total *= exponential<T>(own.shift - shift);
    own.shift = shift;
    for (int j = 0; j < kCount; ++j) own.total += shifted_exponential<T>(x.of[j], shift);
    if (smooths) {
      for (int j = 0; j < kCount; ++j) own.deviations += x.of[j] - of_target;
    }
  });
  RowSums<T> all{};
  all.shift = Team::reduce(own.shift, kLowest, Larger{});
  all.total = Team::reduce(own.total * exponential<T>(own.shift - all.shift), W(0), std::plus<>{});
  if (smooths) all.deviations = Team::reduce(own.deviations, W(0), std::plus<>{});
  return all;
}

/// The inputs of a gradient besides its row.
template <class W>
struct GradientScale {
  W scale, uniform, of_target;
  __device__ GradientScale(const CrossEntropy& s, std::int32_t counted, double seed)
      : scale(counted == 0 ? W(0) : static_cast<W>(seed / static_cast<double>(counted))),
        uniform(scale * static_cast<W>(s.smoothing / static_cast<double>(s.n))),
        of_target(scale * static_cast<W>(1 - s.smoothing)) {}
};

/// The gradient of a piece of a row that counts; `factor` is scale / the sum of exponentials.
template <int kCount, class T>
__device__ Pack<Wide<T>, kCount> gradient_of(const CrossEntropy& s, const Pack<T, kCount>& piece,
                                             Index to_target, Wide<T> shift, Wide<T> factor,
                                             const GradientScale<Wide<T>>& by) {
  Pack<Wide<T>, kCount> y = widened(piece), gradient;
  for (int j = 0; j < kCount; ++j) {
    y.of[j] = capped(s, y.of[j]);
    gradient.of[j] = shifted_exponential<T>(y.of[j], shift) * factor - by.uniform;
  }
  if (to_target >= 0 && to_target < kCount) {
    for (int j = 0; j < kCount; ++j)
      if (j == to_target) gradient.of[j] -= by.of_target;
  }
  for (int j = 0; j < kCount; ++j) gradient.of[j] *= slope_of_cap(s, y.of[j]);
  return gradient;
}

/// One team per row.
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
    const T* line = logits + row * s.lead;
    const W of_target = capped(s, static_cast<W>(line[target]));
    const RowSums<T> sums = sums_of_row<Team>(
        s, line, of_target, [&](Index i, auto count) { return load_pack<decltype(count)::value>(line + i); });
    if (Team::lane() != 0) return;
    statistics[2 * row] = sums.shift;
    statistics[2 * row + 1] = sums.total;
    losses[row] = sums.loss(s, of_target);
  });
}

/// One team per row.
template <class Team, class T>
__global__ void cross_entropy_backward_kernel(CrossEntropy s, const std::int32_t* targets,
                                              const std::int32_t* counted, const T* logits,
                                              const Wide<T>* statistics, const Wide<T>* dloss,
                                              Write<T> dlogits) {
  using W = Wide<T>;
  const GradientScale<W> by(s, *counted, dloss == nullptr ? 1.0 : static_cast<double>(*dloss));
  const bool shares =
      (reinterpret_cast<std::uintptr_t>(logits) - reinterpret_cast<std::uintptr_t>(dlogits.to)) % 16 == 0;
  for_each_row<Team>(s.rows, [&](Index row) {
    const std::int32_t target = targets[row];
    const bool counts = is_counted(s, target);
    const W shift = counts ? statistics[2 * row] : W(0);
    const W factor = counts ? by.scale / statistics[2 * row + 1] : W(0);
    const T* line = logits + row * s.lead;
    const Write<T> to{dlogits.to + row * s.lead, dlogits.add};
    for_each_piece<Team>(line, s.n, shares, [&](Index i, auto count) {
      constexpr int kCount = decltype(count)::value;
      Pack<W, kCount> gradient{};
      if (counts) gradient = gradient_of(s, load_pack<kCount>(line + i), target - i, shift, factor, by);
      put_pack(to, i, gradient);
    });
  });
}

/// One team per row, which is read once: with kKeeps it is kept in shared memory for the second pass, else
/// that reads the cache.
template <class Team, bool kKeeps, class T>
__global__ void __launch_bounds__(threads_of(Team{}), kLeastBlocks<Team, T>)
    cross_entropy_with_gradient_kernel(CrossEntropy s, const std::int32_t* targets,
                                       const std::int32_t* counted, T* logits, double* losses) {
  using W = Wide<T>;
  const GradientScale<W> by(s, *counted, 1);
  for_each_row<Team>(s.rows, [&](Index row) {
    const std::int32_t target = targets[row];
    T* line = logits + row * s.lead;
    if (!is_counted(s, target)) {
      if (Team::lane() == 0) losses[row] = 0;
      for_each_piece<Team>(line, s.n, true, [&](Index i, auto count) {
        store_pack(line + i, Pack<T, decltype(count)::value>{});
      });
      return;
    }
    const T* again = line;
    if constexpr (kKeeps) {
      // A row has the same alignment in shared memory, to 16 bytes. Each piece is read by the thread that
      // copied it.
      __syncthreads();  // the row before may have been divided otherwise
      T* const kept = dynamic_shared<T>() + reinterpret_cast<std::uintptr_t>(line) % 16 / sizeof(T);
      for_each_piece<Team>(line, s.n, true, [&](Index i, auto count) {
        if constexpr (decltype(count)::value == 1) {
          kept[i] = line[i];
        } else {
          copy_async_16(kept + i, line + i, true);
        }
      });
      copy_async_commit();
      again = kept;
    }
    const W of_target = capped(s, static_cast<W>(line[target]));  // while the copies arrive
    if constexpr (kKeeps) copy_async_wait<0>();
    const auto read = [&](Index i, auto count) { return load_pack<decltype(count)::value>(again + i); };
    const RowSums<T> sums = sums_of_row<Team>(s, line, of_target, read);
    if (Team::lane() == 0) losses[row] = sums.loss(s, of_target);
    __syncwarp();  // all lanes have read of_target
    const W factor = by.scale / sums.total;
    for_each_piece<Team>(line, s.n, true, [&](Index i, auto count) {
      constexpr int kCount = decltype(count)::value;
      const Pack<T, kCount> piece = read(i, count);
      store_pack(line + i, narrowed<T>(gradient_of(s, piece, target - i, sums.shift, factor, by)));
    });
  });
}

constexpr int kSumThreads = 1024;
constexpr Index kSumRows = 16 * kSumThreads;  // for a block

/// Each block's sum of kSumRows losses, or with *counted the mean.
template <class T>
__global__ void sum_losses_kernel(Index rows, const double* losses, const std::int32_t* counted, T* sums) {
  const Index from = blockIdx.x * kSumRows, end = from + kSumRows < rows ? from + kSumRows : rows;
  double own = 0;
  for (Index row = from + threadIdx.x; row < end; row += kSumThreads) own += losses[row];
  const double sum = block_sum(own);
  if (threadIdx.x != 0) return;
  const double by = counted == nullptr ? 1.0 : static_cast<double>(*counted);
  sums[blockIdx.x] = by == 0 ? T(0) : static_cast<T>(sum / by);
}

template <class T>
__global__ void scale_gradient_kernel(Index count, bool packed, const Wide<T>* factor, const T* gradient,
                                      Write<T> dx) {
  const Wide<T> by = *factor;
  for_each_pack_of_grid<kCommonPack<T>>(count, packed, [&](auto size, Index i) {
    constexpr int N = decltype(size)::value;
    Pack<Wide<T>, N> scaled = widened(load_pack<N>(gradient + i));
    for (int j = 0; j < N; ++j) scaled.of[j] *= by;
    put_pack(dx, i, scaled);
  });
}

/// Calls use(team, blocks) with the team that suits the rows.
template <class Use>
void with_row_team(const CrossEntropy& s, Use&& use) {
  if (s.n > kLargeRow) return use(LargeTeam{}, std::min(s.rows, kLargeBlocks));
  with_team(s.rows, s.n, use);
}

}  // namespace

template <class T>
void cross_entropy_forward(Cuda on, const CrossEntropy& s, const std::int32_t* targets, const T* logits,
                           Wide<T>* statistics, double* losses) {
  with_row_team(s, [&](auto team, Index blocks) {
    launch(on, "cross_entropy_forward", cross_entropy_forward_kernel<decltype(team), T>,
           {blocks, threads_of(team)}, s, targets, logits, statistics, losses);
  });
}

template <class T>
void mean_loss(Cuda on, Index rows, const double* losses, const std::int32_t* counted, T* loss) {
  const Index blocks = tiles_of(rows, kSumRows);
  if (blocks > 1) {
    const Scratch<double> sums(on, blocks);
    launch(on, "sum_losses", sum_losses_kernel<double>, {blocks, kSumThreads}, rows, losses, nullptr,
           sums.data());
    return mean_loss(on, blocks, sums.data(), counted, loss);
  }
  launch(on, "mean_loss", sum_losses_kernel<T>, {1, kSumThreads}, rows, losses, counted, loss);
}

template <class T>
void cross_entropy_backward(Cuda on, const CrossEntropy& s, const std::int32_t* targets,
                            const std::int32_t* counted, const T* logits, const Wide<T>* statistics,
                            const Wide<T>* dloss, Write<T> dlogits) {
  with_row_team(s, [&](auto team, Index blocks) {
    launch(on, "cross_entropy_backward", cross_entropy_backward_kernel<decltype(team), T>,
           {blocks, threads_of(team)}, s, targets, counted, logits, statistics, dloss, dlogits);
  });
}

template <class T>
void cross_entropy_with_gradient(Cuda on, const CrossEntropy& s, const std::int32_t* targets,
                                 const std::int32_t* counted, T* logits, Wide<T>*, double* losses) {
  const std::size_t shared = static_cast<std::size_t>(s.n) * sizeof(T) + 16;
  with_row_team(s, [&](auto team, Index blocks) {
    using Team = decltype(team);
    const auto queue = [&](auto kernel, std::size_t bytes) {
      launch(on, "cross_entropy_with_gradient", kernel, {blocks, threads_of(team), bytes}, s, targets,
             counted, logits, losses);
    };
    if constexpr (Team::kThreads > kWarp) {
      if (shared + kOfReductions <= shared_room(on))
        return queue(cross_entropy_with_gradient_kernel<Team, true, T>, shared);
    }
    queue(cross_entropy_with_gradient_kernel<Team, false, T>, 0);
  });
}

template <class T>
void scale_gradient(Cuda on, Index count, const Wide<T>* factor, const T* gradient, Write<T> dx) {
  const bool packed = are_packed(gradient, dx.to);
  launch(on, "scale_gradient", scale_gradient_kernel<T>, blocks_for_packs<kCommonPack<T>>(count, packed),
         count, packed, factor, gradient, dx);
}

TAPEFORMER_CUDA_KERNEL(cross_entropy_forward);
TAPEFORMER_CUDA_KERNEL(cross_entropy_backward);
TAPEFORMER_CUDA_KERNEL(cross_entropy_with_gradient);
TAPEFORMER_CUDA_KERNEL(scale_gradient);
TAPEFORMER_WIDE_KERNEL(Cuda, mean_loss);

}  // namespace tapeformer::kernels
