#pragma once

#include <tapeformer/autograd/kernels/cuda/device.h>

#include <limits>

namespace tapeformer::kernels {

constexpr Index kMaxRowBlocks = 4096;  // a few times what a GPU runs at once; they loop over what is left

/// The threads that share a row. They take the elements lane(), lane() + kThreads ..., and all of them reach
/// every reduce().
struct WarpTeam {
  static constexpr int kThreads = kWarp;
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  template <class T, class F>
  __device__ static T reduce(T value, T, F&& f) {
    return warp_reduce(value, f);
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
  constexpr int kTeams = kBlock / Team::kThreads;
  const Index first = Index{blockIdx.x} * kTeams + static_cast<int>(threadIdx.x) / Team::kThreads;
  for (Index row = first; row < rows; row += Index{gridDim.x} * kTeams) f(row);
}

/// Every thread of the team gets f over value(0) ... value(n - 1), combined in one fixed order.
template <class Team, class T, class Value, class F>
__device__ T reduce_row(Index n, T identity, Value&& value, F&& f) {
  T result = identity;
  for (Index i = Team::lane(); i < n; i += Team::kThreads) result = f(result, value(i));
  return Team::reduce(result, identity, f);
}

/// The larger of two; a NaN if one is.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a || b != b ? b : a;
  }
};
struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
template <class T>
constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

inline dim3 row_blocks(Index count) {
  return dim3(static_cast<unsigned>(count < kMaxRowBlocks ? count : kMaxRowBlocks));
}

/// Calls use(team, blocks) with the team that suits rows of n elements.
template <class Use>
void with_team(Index rows, Index n, Use&& use) {
  constexpr Index kWarps = kBlock / kWarp;
  if (n <= 1024) return use(WarpTeam{}, row_blocks((rows + kWarps - 1) / kWarps));
  use(BlockTeam{}, row_blocks(rows));
}

}  // namespace tapeformer::kernels
