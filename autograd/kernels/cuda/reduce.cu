#include <tapeformer/autograd/kernels/cuda/map.h>
#include <tapeformer/autograd/kernels/cuda/rows.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>
#include <tapeformer/autograd/kernels/reduce.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

constexpr int kColumns = kWarp,
              kRowLanes = kBlock / kWarp;  // of a block that reduces columns
constexpr Index kBlocks = 1024;            // enough to keep a GPU busy

/// x [outer, n, inner] -> y [outer, parts, inner]: each of the `parts` is over
/// at most `length` of the n.
struct Reduction {
  Index outer, n, inner, parts, length;
};

/// A team of threads for each result, where inner is 1.
template <class Team, class F, class X, class Y>
__global__ void reduce_rows_kernel(Reduction s, F f, Wide<X> identity, const X* x, Write<Y> y) {
  for_each_row<Team>(s.outer * s.parts, [&](Index row) {
    const Division place = divide(row, s.parts);
    const Index from = place.remainder * s.length, rest = s.n - from;
    const X* px = x + place.quotient * s.n + from;
    const Wide<X> result = reduce_row<Team>(
        rest < s.length ? rest : s.length, identity, [&](Index i) { return static_cast<Wide<X>>(px[i]); }, f);
    if (Team::lane() == 0) y.put(row, result);
  });
}

/// A block for 32 neighbouring columns: each warp takes every eighth row, and
/// the first warp joins what they have.
template <class F, class X, class Y>
__global__ void reduce_columns_kernel(Reduction s, F f, Wide<X> identity, const X* x, Write<Y> y) {
  using W = Wide<X>;
  __shared__ W of_lanes[kRowLanes][kColumns];
  const int lane = static_cast<int>(threadIdx.x) / kColumns, own = static_cast<int>(threadIdx.x) % kColumns;
  const Index tiles = (s.inner + kColumns - 1) / kColumns;
  for (Index block = blockIdx.x; block < s.outer * s.parts * tiles; block += gridDim.x) {
    const Division place = divide(block, tiles), part = divide(place.quotient, s.parts);
    const Index column = place.remainder * kColumns + own, from = part.remainder * s.length;
    const Index end = from + s.length < s.n ? from + s.length : s.n;
    W result = identity;
    if (column < s.inner) {
      for (Index row = from + lane; row < end; row += kRowLanes)
        result = f(result, static_cast<W>(x[(part.quotient * s.n + row) * s.inner + column]));
    }
    of_lanes[lane][own] = result;
    __syncthreads();
    if (lane == 0 && column < s.inner) {
      for (int other = 1; other < kRowLanes; ++other) result = f(result, of_lanes[other][own]);
      y.put(place.quotient * s.inner + column, result);
    }
    __syncthreads();  // before the next round writes
  }
}

template <class F, class X, class Y>
void launch_reduction(Cuda on, const char* name, const Reduction& s, F f, Wide<X> identity, const X* x,
                      Write<Y> y) {
  if (s.inner == 1) {
    return with_team(s.outer * s.parts, s.length, [&](auto team, dim3 blocks) {
      launch(on, name, reduce_rows_kernel<decltype(team), F, X, Y>, blocks, dim3(kBlock), 0, s, f, identity,
             x, y);
    });
  }
  const Index tiles = (s.inner + kColumns - 1) / kColumns;
  launch(on, name, reduce_columns_kernel<F, X, Y>, row_blocks(s.outer * s.parts * tiles), dim3(kBlock), 0, s,
         f, identity, x, y);
}

/// In one step where there are results enough to share out among the blocks;
/// else in two, the first over parts of the n. Where they are cut depends on
/// the sizes only, so results repeat bit for bit.
template <class F, class X, class Y>
void reduce(Cuda on, const char* name, Index outer, Index n, Index inner, F f, Wide<X> identity, const X* x,
            Write<Y> y) {
  const Index teams = outer * (inner == 1 ? 1 : (inner + kColumns - 1) / kColumns);
  if (teams == 0) return;
  const Index shortest = inner == 1 ? 8 * kBlock : 8 * kRowLanes;  // a part that is worth a block
  const Index wanted = std::clamp<Index>(n / shortest, 1, std::max<Index>(kBlocks / teams, 1));
  const Index length = std::max<Index>((n + wanted - 1) / wanted, 1);
  const Index parts = std::max<Index>((n + length - 1) / length, 1);
  const Reduction step{outer, n, inner, parts, length};
  if (parts == 1) return launch_reduction(on, name, step, f, identity, x, y);
  const Scratch<Wide<X>> partial(on, outer * parts * inner);
  launch_reduction(on, name, step, f, identity, x, Write<Wide<X>>{partial.data(), false});
  const Reduction last{outer, parts, inner, 1, parts};
  launch_reduction(on, name, last, f, identity, static_cast<const Wide<X>*>(partial.data()), y);
}

}  // namespace

template <class T>
void reduce_sum(Cuda on, Index outer, Index n, Index inner, const T* x, Write<Wide<T>> y) {
  reduce(on, "reduce_sum", outer, n, inner, Sum{}, Wide<T>(0), x, y);
}

template <class T>
void reduce_max(Cuda on, Index outer, Index n, Index inner, const T* x, T* y) {
  reduce(on, "reduce_max", outer, n, inner, Larger{}, kMinusInfinity<Wide<T>>, x, Write<T>{y, false});
}

#define INSTANTIATE(T)                                                           \
  template void reduce_sum(Cuda, Index, Index, Index, const T*, Write<Wide<T>>); \
  template void reduce_max(Cuda, Index, Index, Index, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
INSTANTIATE(BFloat16)
#undef INSTANTIATE

}  // namespace tapeformer::kernels
