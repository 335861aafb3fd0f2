#pragma once

#include <tapeformer/autograd/kernels/cuda/map.h>
#include <tapeformer/autograd/kernels/cuda/rows.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>
#include <tapeformer/autograd/kernels/reduce.h>

#include <algorithm>

/// Sums over the rows of matrices. Their numbers come from a source, which has
///   kAtOnce             the rows that a thread loads together,
///   Loaded load(at)     what it must load for N neighbours from element `at` on,
///   use(at, loaded)     these numbers, Pack<W, N>; it may also store something.
namespace tapeformer::kernels {

/// x [outer, n, inner], whose rows of `inner` begin `lead` values apart -> y [outer, parts, inner]: each part
/// is a sum over at most `length` of the n.
struct Reduction {
  Index outer, n, inner, lead, parts, length;
};

/// The source of a stored matrix.
template <int N, class T>
struct StoredColumns {
  static constexpr int kAtOnce = 6;
  using Loaded = Pack<T, N>;
  const T* x;
  __device__ Loaded load(Index at) const { return load_pack<N>(x + at); }
  __device__ Pack<Wide<T>, N> use(Index, const Loaded& loaded) const { return widened(loaded); }
};

/// One block for `width` neighbouring packs of N columns and one part of the rows: a thread takes every
/// kBlock / width-th row, and the first threads add up the sums of one column each. y may be nullptr.
template <int N, class Source, class W>
__global__ void __launch_bounds__(kBlock, 4)
    reduce_columns_kernel(Reduction s, int width, Source source, Write<W> y) {
  constexpr int kAtOnce = Source::kAtOnce;
  __shared__ Pack<W, N> of_threads[kBlock];
  const int thread = static_cast<int>(threadIdx.x), lane = thread / width, own = thread % width;
  const int lanes = kBlock / width;
  const Index packs = s.inner / N, tiles = tiles_of(packs, width);
  for (Index block = blockIdx.x; block < s.outer * s.parts * tiles; block += gridDim.x) {
    const Division place = divide(block, tiles), part = divide(place.quotient, s.parts);
    const Index first = place.remainder * width * N, column = (place.remainder * width + own) * N;
    const Index from = part.remainder * s.length;
    const int rows = static_cast<int>(from + s.length < s.n ? s.length : s.n - from);
    const Index stride = lanes * s.lead;
    Index at = (part.quotient * s.n + from + lane) * s.lead + column;
    Pack<W, N> sums{};
    for (int row = column < s.inner ? lane : rows; row < rows;
         row += kAtOnce * lanes, at += kAtOnce * stride) {
      typename Source::Loaded loaded[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u)
        if (row + u * lanes < rows) loaded[u] = source.load(at + u * stride);
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u)
        if (row + u * lanes < rows) add_pack(sums, source.use(at + u * stride, loaded[u]));
    }
    if (!y) continue;
    of_threads[thread] = sums;
    __syncthreads();
    if (thread < width * N && first + thread < s.inner) {
      W sum(0);
      for (int other = 0; other < lanes; ++other)
        sum += of_threads[other * width + thread / N].of[thread % N];
      y.put(place.quotient * s.inner + first + thread, sum);
    }
    __syncthreads();  // before the next round writes
  }
}

/// Sums over n, in one step if it is short; else over parts of n, and then over the parts. The division
/// depends only on the sizes, so results repeat bit for bit.
template <int N, class Source, class W>
void reduce_columns(Cuda on, const char* name, Index outer, Index n, Index inner, Index lead,
                    const Source& source, Write<W> y) {
  constexpr Index kBlocks = 1536;    // a few times what a large GPU runs at once
  constexpr Index kInTurn = 64;      // values that a thread adds in sequence, so that errors grow slowly
  constexpr Index kOneStep = 1024;   // rows that are not worth a second step
  constexpr Index kManyRows = 4096;  // enough to keep a GPU busy with blocks that take 512 bytes of a row
  const int widest = n <= kOneStep ? 4 : n < kManyRows ? 8 : kWarp;
  int width = 1;
  while (width < widest && width * N < inner) width *= 2;
  const Index lanes = kBlock / width, teams = outer * tiles_of(inner, width * N);
  if (teams == 0) return;
  const Index for_blocks = std::clamp<Index>(n / (8 * lanes), 1, std::max<Index>(kBlocks / teams, 1));
  const Index wanted = n <= kOneStep ? 1 : std::max(for_blocks, tiles_of(n, kInTurn * lanes));
  const Index length = std::max<Index>(tiles_of(n, wanted), 1),
              parts = std::max<Index>(tiles_of(n, length), 1);
  const auto queue = [&](const Write<W>& to) {
    launch(on, name, reduce_columns_kernel<N, Source, W>, row_blocks(teams * parts),
           Reduction{outer, n, inner, lead, parts, length}, width, source, to);
  };
  if (parts == 1 || !y) return queue(y);
  const Scratch<W> partial(on, outer * parts * inner);
  queue({partial.data(), false});
  reduce_sum(on, outer, parts, inner, static_cast<const W*>(partial.data()), y);
}

}  // namespace tapeformer::kernels
