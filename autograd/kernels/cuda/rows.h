#pragma once

#include <tapeformer/autograd/kernels/cuda/pack.h>

#include <algorithm>

namespace tapeformer::kernels {

constexpr Index kMaxRowBlocks = 4096;  // a few times what a GPU runs at once; they loop over the rest

/// A product that is not fused with a sum.
__device__ inline float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double rounded_product(double a, double b) { return __dmul_rn(a, b); }

/// The threads that share a row. They take the elements lane(), lane() + kThreads ..., and all of them must
/// reach every reduce().
struct WarpTeam {
  static constexpr int kThreads = kWarp;
  __device__ static int lane() { return own_lane(); }
  template <class T, class F>
  __device__ static T reduce(T value, T, F&& f) {
    return warp_reduce(value, f);
  }
};
struct ThreadTeam {
  static constexpr int kThreads = 1;
  __device__ static int lane() { return 0; }
  template <class T, class F>
  __device__ static T reduce(T value, T, F&&) {
    return value;
  }
};
struct BlockTeam {
  static constexpr int kThreads = kBlock;
  __device__ static int lane() { return static_cast<int>(threadIdx.x); }
  template <class T, class F>
  __device__ static T reduce(T value, T identity, F&& f) {
    return block_reduce(value, identity, f);
  }
};

/// Calls f(row) for the rows of this thread's team.
template <class Team, class F>
__device__ void for_each_row(Index rows, F&& f) {
  constexpr int kTeams = Team::kThreads < kBlock ? kBlock / Team::kThreads : 1;
  const Index first = Index{blockIdx.x} * kTeams + static_cast<int>(threadIdx.x) / Team::kThreads;
  for (Index row = first; row < rows; row += Index{gridDim.x} * kTeams) f(row);
}

/// Returns to every thread of the team f over value(0) ... value(n - 1), combined in a fixed order.
template <class Team, class T, class Value, class F>
__device__ T reduce_row(Index n, T identity, Value&& value, F&& f) {
  T result = identity;
  for (Index i = Team::lane(); i < n; i += Team::kThreads) result = f(result, value(i));
  return Team::reduce(result, identity, f);
}

/// The larger of two numbers; NaN if one is.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a || b != b ? b : a;
  }
};

inline Index row_blocks(Index count) { return std::min(count, kMaxRowBlocks); }

/// A team whose threads hold a row in registers: kPacks packs of 16 bytes each.
template <class Team, int kMost>
struct Holding : Team {
  static constexpr int kPacks = kMost;
};
/// The widest row that any of them holds.
template <class T>
constexpr Index kMostHeld = Index{4} * kBlock* kPackSize<T>;

/// Calls f(k, i) for this thread's packs: the k-th begins at element i of the row.
template <class Team, class T, class F>
__device__ void for_each_pack(int n, F&& f) {
#pragma unroll
  for (int k = 0; k < Team::kPacks; ++k) {
    const int i = (Team::lane() + k * Team::kThreads) * kPackSize<T>;
    if (i < n) f(k, i);
  }
}
/// Calls f(k, j, i) for every value: the j-th of the k-th pack, element i of the row.
template <class Team, class T, class F>
__device__ void for_each_held(int n, F&& f) {
  for_each_pack<Team, T>(n, [&](int k, int i) {
#pragma unroll
    for (int j = 0; j < kPackSize<T>; ++j) f(k, j, i + j);
  });
}
/// The bits of dropout's mask for a pack that begins at element i, the first one lowest. All ones without a
/// mask.
__device__ inline unsigned mask_bits(const std::int32_t* mask, Index i) {
  return mask != nullptr ? static_cast<unsigned>(mask[i / 32]) >> (i % 32) : ~0u;
}
template <class Team, class T>
__device__ void load_row(int n, const T* row, Pack<T> (&held)[Team::kPacks]) {
  for_each_pack<Team, T>(n, [&](int k, int i) { held[k] = load_pack<kPackSize<T>>(row + i); });
}
template <class Team, class T>
__device__ void store_row(int n, T* row, const Pack<T> (&held)[Team::kPacks]) {
  for_each_pack<Team, T>(n, [&](int k, int i) { store_pack<kPackSize<T>>(row + i, held[k]); });
}

/// Calls use(team, blocks) with the team that suits rows of n elements.
template <class Use>
void with_team(Index rows, Index n, Use&& use) {
  constexpr Index kWarps = kBlock / kWarp;
  if (n <= 1024) return use(WarpTeam{}, row_blocks(tiles_of(rows, kWarps)));
  use(BlockTeam{}, row_blocks(rows));
}

/// Calls use(team) with the team that holds rows of n elements; `packed` says whether the addresses have the
/// alignment of a pack. False if there is no such team.
template <class T, class Use>
bool with_holding_team(Index n, bool packed, Use&& use) {
  if (!packed || n % kPackSize<T> != 0 || n > kMostHeld<T>) return false;
  const Index packs = n / kPackSize<T>;
  if (packs <= kWarp) {
    use(Holding<WarpTeam, 1>{});
  } else if (packs <= 2 * kWarp) {
    use(Holding<WarpTeam, 2>{});
  } else if (packs <= 3 * kWarp) {
    use(Holding<WarpTeam, 3>{});
  } else if (packs <= 4 * kWarp) {
    use(Holding<WarpTeam, 4>{});
  } else if (packs <= kBlock) {
    use(Holding<BlockTeam, 1>{});
  } else if (packs <= 2 * kBlock) {
    use(Holding<BlockTeam, 2>{});
  } else {
    use(Holding<BlockTeam, 4>{});
  }
  return true;
}

/// Blocks for `rows` rows of such a team.
template <class Team>
Index team_blocks(Index rows) {
  constexpr Index kTeams = kBlock / Team::kThreads;
  return row_blocks(tiles_of(rows, kTeams));
}

}  // namespace tapeformer::kernels
