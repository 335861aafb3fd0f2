#include <tapeformer/autograd/kernels/cuda/rows.h>
#include <tapeformer/autograd/kernels/normalization.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

/// The branch's gradient, from that of the sum.
template <class T>
__device__ Wide<T> branch_share(const BranchGradient<T>& branch, bool kept, Wide<T> gradient) {
  return kept ? gradient * branch.scale : Wide<T>(0);
}

/// partials[part] = the sums of a block's teams for their columns: of dy * xhat, then of dy. The first team
/// writes, the others add in order.
template <class Team, class T, class Held>
__device__ void gather_columns(int n, const Held& products, const Held& sums, Wide<T>* partials) {
  using W = Wide<T>;
  constexpr int kTeams = kBlock / Team::kThreads;
  constexpr int kWidth = Team::kPacks * Team::kThreads * kPackSize<T>;
  __shared__ W shared[kTeams > 1 ? 2 * kWidth : 1];
  const int own = static_cast<int>(threadIdx.x) / Team::kThreads;
  for (int team = 0; team < kTeams; ++team) {
    for_each_held<Team, T>(team == own ? n : 0, [&](int k, int j, int i) {
      const W product = products[k][j] + (team > 0 ? shared[i] : W(0));
      const W sum = sums[k][j] + (team > 0 ? shared[kWidth + i] : W(0));
      (team + 1 < kTeams ? shared[i] : partials[i]) = product;
      (team + 1 < kTeams ? shared[kWidth + i] : partials[n + i]) = sum;
    });
    if (kTeams > 1) __syncthreads();
  }
}

/// A thread's own numbers in shared memory: of x and dy two rows, one that it computes and one that arrives,
/// and of dx, if it is added to, the first of them.
template <class Team, class T>
struct Arrivals {
  static constexpr std::size_t kBytes = sizeof(Pack<T>) * 5 * Team::kPacks * kBlock;
  __device__ static T* x(int turn, int k) { return at(2 * turn, k); }
  __device__ static T* dy(int turn, int k) { return at(2 * turn + 1, k); }
  __device__ static T* dx(int k) { return at(4, k); }

 private:
  __device__ static T* at(int row, int k) {
    const int pack = (row * Team::kPacks + k) * kBlock + static_cast<int>(threadIdx.x);
    return dynamic_shared<T>() + pack * kPackSize<T>;
  }
};

/// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), g = dy * weight, rounded before it is used: otherwise g
/// less its mean would not be zero in a row of one element. A block takes a part of the rows, and each of its
/// teams a row at a time; each thread keeps the sums of its columns.
template <class Team, class T>
__global__ void __launch_bounds__(kBlock, 2)
    normalize_backward_held_kernel(Index rows, int n, bool centred, const T* x, const T* weight,
                                   const Wide<T>* mean, const Wide<T>* rstd, const T* dy, Wide<T>* partials,
                                   Write<T> dx, BranchGradient<T> branch) {
  using W = Wide<T>;
  using Row = Arrivals<Team, T>;
  constexpr int kSize = kPackSize<T>, kTeams = kBlock / Team::kThreads, kStep = Team::kThreads * kSize;
  const Index part = blockIdx.x, parts = gridDim.x, end = rows * (part + 1) / parts;
  W products[Team::kPacks][kSize] = {}, sums[Team::kPacks][kSize] = {}, next_centre(0), next_scale(0);
  const int first = Team::lane() * kSize;  // of a row's numbers, then every kStep-th
  const auto fetch = [&](Index row, int turn) {
    if (row < end) {
      if (mean != nullptr) next_centre = mean[row];
      next_scale = rstd[row];
      const T *const from_x = x + row * n + first, *const from_dy = dy + row * n + first;
      for_each_pack<Team, T>(n, [&](int k, int) {
        copy_async_16(Row::x(turn, k), from_x + k * kStep, true);
        copy_async_16(Row::dy(turn, k), from_dy + k * kStep, true);
      });
    }
    copy_async_commit();
  };
  Index row = rows * part / parts + static_cast<int>(threadIdx.x) / Team::kThreads;
  fetch(row, 0);
  for (int turn = 0; row < end; row += kTeams, turn ^= 1) {
    const Index start = row * n + first;
    const W centre = next_centre, scale = next_scale;
    unsigned masks[Team::kPacks];
    if (dx.add) {
      for_each_pack<Team, T>(n,
                             [&](int k, int) { copy_async_16(Row::dx(k), dx.to + start + k * kStep, true); });
    }
    copy_async_commit();
    if (branch.mask != nullptr) {
      for_each_pack<Team, T>(
          n, [&](int k, int) { masks[k] = static_cast<unsigned>(branch.mask[(start + k * kStep) / 32]); });
    }
    fetch(row + kTeams, turn ^ 1);
    copy_async_wait<2>();
    // Calls use(j, d, g, xhat) for the numbers of a pack.
    const auto for_each = [&](int k, auto&& use) {
      const Pack<W, kSize> held = widened(load_pack<kSize>(Row::x(turn, k))),
                           d = widened(load_pack<kSize>(Row::dy(turn, k)));
      Pack<W, kSize> w;
      if (weight != nullptr) w = widened(load_pack<kSize>(weight + first + k * kStep));
#pragma unroll
      for (int j = 0; j < kSize; ++j)
        use(j, d.of[j], weight != nullptr ? rounded_product(d.of[j], w.of[j]) : d.of[j],
            (held.of[j] - centre) * scale);
    };
    W sum(0), sum_product(0);
    for_each_pack<Team, T>(n, [&](int k, int) {
      for_each(k, [&](int j, W d, W g, W normal) {
        products[k][j] += d * normal;
        sums[k][j] += d;
        sum += g;
        sum_product += g * normal;
      });
    });
    if (!dx) continue;
    copy_async_wait<1>();
    const W mean_gradient = centred ? Team::reduce(sum, W(0), std::plus<>{}) / static_cast<W>(n) : W(0);
    const W mean_product = Team::reduce(sum_product, W(0), std::plus<>{}) / static_cast<W>(n);
    for_each_pack<Team, T>(n, [&](int k, int) {
      const Index at = start + k * kStep;
      Pack<W, kSize> values;
      for_each(k, [&](int j, W, W g, W normal) {
        values.of[j] = scale * (g - mean_gradient - normal * mean_product);
      });
      if (dx.add) add_pack(values, widened(load_pack<kSize>(Row::dx(k))));
      const Pack<T> rounded = narrowed<T>(values);
      store_pack<kSize>(dx.to + at, rounded);
      if (branch.to == nullptr) return;
      const unsigned kept = branch.mask != nullptr ? masks[k] >> (at % 32) : ~0u;
      values = widened(rounded);
#pragma unroll
      for (int j = 0; j < kSize; ++j)
        values.of[j] = branch_share(branch, (kept >> j & 1u) != 0, values.of[j]);
      store_pack<kSize>(branch.to + at, narrowed<T>(values));
    });
  }
  if (partials != nullptr) gather_columns<Team, T>(n, products, sums, partials + part * 2 * n);
}

/// dx alone, for rows of any width and alignment: one team per row.
template <class Team, class T>
__global__ void normalize_backward_kernel(Index rows, Index n, bool centred, const T* x, const T* weight,
                                          const Wide<T>* mean, const Wide<T>* rstd, const T* dy, Write<T> dx,
                                          BranchGradient<T> branch) {
  using W = Wide<T>;
  for_each_row<Team>(rows, [&](Index row) {
    const Index start = row * n;
    const W centre = mean != nullptr ? mean[row] : W(0), scale = rstd[row];
    const auto normal = [&](Index i) { return (static_cast<W>(x[start + i]) - centre) * scale; };
    const auto gradient = [&](Index i) {
      const W d = static_cast<W>(dy[start + i]);
      return weight != nullptr ? rounded_product(d, static_cast<W>(weight[i])) : d;
    };
    const W mean_gradient =
        centred ? reduce_row<Team>(n, W(0), gradient, std::plus<>{}) / static_cast<W>(n) : W(0);
    const auto product = [&](Index i) { return gradient(i) * normal(i); };
    const W mean_product = reduce_row<Team>(n, W(0), product, std::plus<>{}) / static_cast<W>(n);
    for (Index i = Team::lane(); i < n; i += Team::kThreads) {
      dx.put(start + i, scale * (gradient(i) - mean_gradient - normal(i) * mean_product));
      const bool kept = (mask_bits(branch.mask, start + i) & 1u) != 0;
      if (branch.to != nullptr)
        branch.to[start + i] = static_cast<T>(branch_share(branch, kept, static_cast<W>(dx.to[start + i])));
    }
  });
}

constexpr int kColumns = kWarp, kRowThreads = kBlock / kColumns, kPartThreads = 32;
constexpr Index kPartRows = 8;     // a row for each warp of a block
constexpr Index kBusyParts = 264;  // two blocks for each multiprocessor of a large GPU
constexpr Index kMostRows = 512;   // of a part, so that no thread adds up many numbers in sequence

/// Adds the sums of a block's warps in order, lane by lane. True for the first warp, which gets them.
template <int kWarps, class W>
__device__ bool join_warps(W& product, W& sum) {
  __shared__ W products[kWarps][kColumns], sums[kWarps][kColumns];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  products[warp][lane] = product, sums[warp][lane] = sum;
  __syncthreads();
  for (int other = 1; warp == 0 && other < kWarps; ++other)
    product += products[other][lane], sum += sums[other][lane];
  return warp == 0;
}

/// For rows of any width and alignment, one block for a strip of columns and a part of the rows:
/// partials[part] gets the sums of dy * xhat, then of dy. Each warp sums every kRowThreads-th row; the first
/// adds up their sums.
template <class T>
__global__ void column_parts_kernel(Index rows, Index n, const T* x, const Wide<T>* mean, const Wide<T>* rstd,
                                    const T* dy, Wide<T>* partials) {
  using W = Wide<T>;
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const Index column = Index{blockIdx.x} * kColumns + lane, part = blockIdx.y, parts = gridDim.y;
  W product(0), sum(0);
  for (Index row = rows * part / parts + warp; column < n && row < rows * (part + 1) / parts;
       row += kRowThreads) {
    const W centre = mean != nullptr ? mean[row] : W(0), d = static_cast<W>(dy[row * n + column]);
    product += d * ((static_cast<W>(x[row * n + column]) - centre) * rstd[row]);
    sum += d;
  }
  if (!join_warps<kRowThreads>(product, sum) || column >= n) return;
  partials[part * 2 * n + column] = product;
  partials[part * 2 * n + n + column] = sum;
}

/// One block for a strip of columns: each warp sums every kPartThreads-th part, the first adds up their sums.
template <class W>
__global__ void column_sums_kernel(Index n, Index parts, const W* partials, Write<W> dweight,
                                   Write<W> dbias) {
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const Index column = Index{blockIdx.x} * kColumns + lane;
  W product(0), sum(0);
  for (Index part = warp; column < n && part < parts; part += kPartThreads) {
    product += partials[part * 2 * n + column];
    sum += partials[part * 2 * n + n + column];
  }
  if (!join_warps<kPartThreads>(product, sum) || column >= n) return;
  if (dweight) dweight.put(column, product);
  if (dbias) dbias.put(column, sum);
}

}  // namespace

Index normalize_parts(Cuda, Index rows, Index) {
  const Index shortest = tiles_of(rows, kPartRows), longest = tiles_of(rows, kMostRows);
  return std::max(std::clamp<Index>(shortest, 1, kBusyParts), std::min<Index>(longest, 65535));
}

template <class T>
void normalize_backward(Cuda on, Index rows, Index n, bool centred, const T* x, const T* weight,
                        const Wide<T>* mean, const Wide<T>* rstd, const T* dy, Wide<T>* partials, Write<T> dx,
                        const BranchGradient<T>& branch, Write<Wide<T>> dweight, Write<Wide<T>> dbias) {
  if (!dx && partials == nullptr) return;
  const Index parts = normalize_parts(on, rows, n);
  const Index strips = tiles_of(n, kColumns);
  const bool packed = are_packed(x, weight, dy, dx.to, branch.to);
  const bool held = with_holding_team<T>(n, packed, [&](auto team) {
    using Team = decltype(team);
    launch(on, "normalize_backward", normalize_backward_held_kernel<Team, T>,
           {parts, kBlock, Arrivals<Team, T>::kBytes}, rows, n, centred, x, weight, mean, rstd, dy, partials,
           dx, branch);
  });
  if (!held && dx) {
    with_team(rows, n, [&](auto team, Index blocks) {
      launch(on, "normalize_backward", normalize_backward_kernel<decltype(team), T>, blocks, rows, n, centred,
             x, weight, mean, rstd, dy, dx, branch);
    });
  }
  if (partials == nullptr) return;
  if (!held) {
    launch(on, "normalize_backward", column_parts_kernel<T>, {strips, parts, 1, dim3(kColumns, kRowThreads)},
           rows, n, x, mean, rstd, dy, partials);
  }
  launch(on, "normalize_backward", column_sums_kernel<Wide<T>>, {strips, 1, 1, dim3(kColumns, kPartThreads)},
         n, parts, partials, dweight, dbias);
}

TAPEFORMER_CUDA_KERNEL(normalize_backward);

}  // namespace tapeformer::kernels
