#include <tapeformer/autograd/kernels/cuda/map.h>
#include <tapeformer/autograd/kernels/cuda/rows.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>
#include <tapeformer/autograd/kernels/reduce.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

constexpr Index kBlocks = 1024;  // enough to keep a GPU busy
constexpr Index kInTurn = 64;    // values that a thread adds in sequence, so that errors grow slowly

/// x [outer, n, inner], whose rows of `inner` begin `lead` values apart -> y [outer, parts, inner]: each part
/// is a sum over at most `length` of the n.
struct Reduction {
  Index outer, n, inner, lead, parts, length;
};

/// One team of threads for each result, for inner = lead = 1. `packed`: every part begins at a pack's
/// alignment.
template <class Team, class X, class Y>
__global__ void reduce_rows_kernel(Reduction s, bool packed, const X* x, Write<Y> y) {
  constexpr int N = kCommonPack<X>;
  using W = Wide<X>;
  for_each_row<Team>(s.outer * s.parts, [&](Index row) {
    const Division place = divide(row, s.parts);
    const Index from = place.remainder * s.length, rest = s.n - from;
    const X* px = x + place.quotient * s.n + from;
    const Index count = rest < s.length ? rest : s.length, in_packs = packed ? count / N * N : 0;
    W lanes[N];
#pragma unroll
    for (int k = 0; k < N; ++k) lanes[k] = W(0);
#pragma unroll 4
    for (Index i = Index{Team::lane()} * N; i < in_packs; i += Team::kThreads * N) {
      const Pack<X, N> values = load_pack<N>(px + i);
#pragma unroll
      for (int k = 0; k < N; ++k) lanes[k] += static_cast<W>(values.of[k]);
    }
    for (Index i = in_packs + Team::lane(); i < count; i += Team::kThreads) lanes[0] += static_cast<W>(px[i]);
#pragma unroll
    for (int k = 1; k < N; ++k) lanes[0] += lanes[k];
    const W result = Team::reduce(lanes[0], W(0), std::plus<>{});
    if (Team::lane() == 0) y.put(row, result);
  });
}

/// One block for `width` neighbouring packs of N columns, a power of two up to kBlock: a thread takes every
/// kBlock / width-th row, and the threads of the first row add up the sums of their columns.
template <int N, class X, class Y>
__global__ void reduce_columns_kernel(Reduction s, int width, const X* x, Write<Y> y) {
  using W = Wide<X>;
  __shared__ Pack<W, N> of_threads[kBlock];
  const int thread = static_cast<int>(threadIdx.x), lane = thread / width, own = thread % width;
  const int lanes = kBlock / width;
  const Index packs = s.inner / N, tiles = tiles_of(packs, width);
  for (Index block = blockIdx.x; block < s.outer * s.parts * tiles; block += gridDim.x) {
    const Division place = divide(block, tiles), part = divide(place.quotient, s.parts);
    const Index column = (place.remainder * width + own) * N, from = part.remainder * s.length;
    const Index end = from + s.length < s.n ? from + s.length : s.n;
    Pack<W, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result.of[k] = W(0);
    if (column < s.inner) {
#pragma unroll 4
      for (Index row = from + lane; row < end; row += lanes) {
        const Pack<X, N> values = load_pack<N>(x + (part.quotient * s.n + row) * s.lead + column);
#pragma unroll
        for (int k = 0; k < N; ++k) result.of[k] += static_cast<W>(values.of[k]);
      }
    }
    of_threads[thread] = result;
    __syncthreads();
    if (lane == 0 && column < s.inner) {
      for (int other = 1; other < lanes; ++other) {
        const Pack<W, N> more = of_threads[other * width + own];
#pragma unroll
        for (int k = 0; k < N; ++k) result.of[k] += more.of[k];
      }
#pragma unroll
      for (int k = 0; k < N; ++k) y.put(place.quotient * s.inner + column + k, result.of[k]);
    }
    __syncthreads();  // before the next round writes
  }
}

/// The number of packs of N columns that a block of reduce_columns_kernel() takes side by side.
int packs_side_by_side(Index inner, int N) {
  int width = 1;
  while (width < 8 && width * N < inner) width *= 2;  // 128 bytes of a row
  return width;
}

template <class X, class Y>
void launch_reduction(Cuda on, const char* name, const Reduction& s, const X* x, Write<Y> y) {
  constexpr int kPack = kCommonPack<X>;
  if (s.lead == 1) {
    const bool packed =
        are_packed(x) && (s.outer == 1 || s.n % kPack == 0) && (s.parts == 1 || s.length % kPack == 0);
    return with_team(s.outer * s.parts, s.length, [&](auto team, Index blocks) {
      launch(on, name, reduce_rows_kernel<decltype(team), X, Y>, blocks, s, packed, x, y);
    });
  }
  const auto reduce_columns = [&](auto size) {
    constexpr int N = decltype(size)::value;
    const int width = packs_side_by_side(s.inner, N);
    const Index tiles = tiles_of(s.inner / N, width);
    launch(on, name, reduce_columns_kernel<N, X, Y>, row_blocks(s.outer * s.parts * tiles), s, width, x, y);
  };
  if (s.inner % kPack == 0 && s.lead % kPack == 0 && are_packed(x))
    return reduce_columns(std::integral_constant<int, kPack>{});
  reduce_columns(std::integral_constant<int, 1>{});
}

/// One step if n is short and there are enough results for the blocks; else over parts of n, and then over
/// the parts. The division depends only on the sizes, so results repeat bit for bit.
template <class X, class Y>
void reduce(Cuda on, const char* name, Index outer, Index n, Index inner, Index lead, const X* x,
            Write<Y> y) {
  constexpr int N = kCommonPack<X>;
  const int width = packs_side_by_side(inner, N);
  const Index teams = outer * (lead == 1 ? 1 : tiles_of(inner, width * N));
  if (teams == 0) return;
  const Index shortest = lead == 1 ? 2 * kBlock * N : 4 * kBlock / width;  // a part that is worth a block
  const Index longest = kInTurn * (lead == 1 ? kBlock * N : kBlock / width);
  const Index wanted =
      std::max(std::clamp<Index>(n / shortest, 1, std::max<Index>(kBlocks / teams, 1)), tiles_of(n, longest));
  const Index even = std::max<Index>(tiles_of(n, wanted), 1);
  const Index length = wanted == 1 ? even : tiles_of(even, N) * N;  // so that parts are aligned for packs
  const Index parts = std::max<Index>(tiles_of(n, length), 1);
  const Reduction step{outer, n, inner, lead, parts, length};
  if (parts == 1) return launch_reduction(on, name, step, x, y);
  const Scratch<Wide<X>> partial(on, outer * parts * inner);
  launch_reduction(on, name, step, x, Write<Wide<X>>{partial.data(), false});
  reduce(on, name, outer, parts, inner, inner, static_cast<const Wide<X>*>(partial.data()), y);
}

}  // namespace

template <class T>
void reduce_sum(Cuda on, Index outer, Index n, Index inner, const T* x, Write<Wide<T>> y) {
  reduce(on, "reduce_sum", outer, n, inner, inner, x, y);
}

template <class T>
void sum_rows(Cuda on, Index rows, Index n, Index lead, const T* x, Write<Wide<T>> y) {
  reduce(on, "sum_rows", 1, rows, n, lead, x, y);
}

#define INSTANTIATE(T)                                                           \
  template void reduce_sum(Cuda, Index, Index, Index, const T*, Write<Wide<T>>); \
  template void sum_rows(Cuda, Index, Index, Index, const T*, Write<Wide<T>>);
TAPEFORMER_CUDA_TYPES(INSTANTIATE)

}  // namespace tapeformer::kernels
