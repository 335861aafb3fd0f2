#include <tapeformer/autograd/kernels/cuda/columns.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

constexpr Index kBlocks = 1024;  // enough to keep a GPU busy
constexpr Index kInTurn = 64;    // values that a thread adds in sequence, so that errors grow slowly

/// One team of threads for each result, for inner = lead = 1. `packed`: every part begins at a pack's
/// alignment.
template <class Team, class T>
__global__ void reduce_rows_kernel(Reduction s, bool packed, const T* x, Write<Wide<T>> y) {
  constexpr int N = kCommonPack<T>;
  using W = Wide<T>;
  for_each_row<Team>(s.outer * s.parts, [&](Index row) {
    const Division place = divide(row, s.parts);
    const Index from = place.remainder * s.length, rest = s.n - from;
    const T* px = x + place.quotient * s.n + from;
    const Index count = rest < s.length ? rest : s.length, in_packs = packed ? count / N * N : 0;
    W lanes[N];
#pragma unroll
    for (int k = 0; k < N; ++k) lanes[k] = W(0);
#pragma unroll 4
    for (Index i = Index{Team::lane()} * N; i < in_packs; i += Team::kThreads * N) {
      const Pack<T, N> values = load_pack<N>(px + i);
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

/// One step if n is short, or if there are enough results for the blocks and no thread adds many values in
/// sequence; else over parts of n, and then over the parts. The division depends only on the sizes, so
/// results repeat bit for bit.
template <class T>
void reduce_rows(Cuda on, Index outer, Index n, const T* x, Write<Wide<T>> y) {
  constexpr int N = kCommonPack<T>;
  if (outer == 0) return;
  constexpr Index kShortest = 2 * kBlock * N;  // a part that is worth a block
  const Index for_blocks = std::clamp<Index>(n / kShortest, 1, std::max<Index>(kBlocks / outer, 1));
  const Index wanted = std::max(for_blocks, tiles_of(n, kInTurn * kBlock * N));
  const Index even = std::max<Index>(tiles_of(n, wanted), 1);
  const Index length = wanted == 1 ? even : tiles_of(even, N) * N;  // so that parts are aligned for packs
  const Index parts = std::max<Index>(tiles_of(n, length), 1);
  const bool packed = are_packed(x) && (outer == 1 || n % N == 0) && (parts == 1 || length % N == 0);
  const auto queue = [&](const Write<Wide<T>>& to) {
    const auto with = [&](auto team, Index blocks) {
      launch(on, "reduce_rows", reduce_rows_kernel<decltype(team), T>, blocks,
             Reduction{outer, n, 1, 1, parts, length}, packed, x, to);
    };
    constexpr Index kShortRow = 8;  // most lanes of a warp would have nothing to add
    if (length <= kShortRow) return with(ThreadTeam{}, row_blocks(tiles_of(outer * parts, kBlock)));
    with_team(outer * parts, length, with);
  };
  if (parts == 1) return queue(y);
  const Scratch<Wide<T>> partial(on, outer * parts);
  queue({partial.data(), false});
  reduce_rows(on, outer, parts, static_cast<const Wide<T>*>(partial.data()), y);
}

template <class T>
void reduce(Cuda on, const char* name, Index outer, Index n, Index inner, Index lead, const T* x,
            Write<Wide<T>> y) {
  constexpr int N = kCommonPack<T>;
  if (lead == 1) return reduce_rows(on, outer, n, x, y);
  if (inner % N == 0 && lead % N == 0 && are_packed(x))
    return reduce_columns<N>(on, name, outer, n, inner, lead, StoredColumns<N, T>{x}, y);
  reduce_columns<1>(on, name, outer, n, inner, lead, StoredColumns<1, T>{x}, y);
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

TAPEFORMER_CUDA_KERNEL(reduce_sum);
TAPEFORMER_CUDA_KERNEL(sum_rows);

}  // namespace tapeformer::kernels
