#include <tapeformer/autograd/kernels/cuda/pack.h>
#include <tapeformer/autograd/kernels/experts.h>

namespace tapeformer::kernels {
namespace {

// Products of many experts in one launch: a block computes a square tile of c = a b, on tensor cores or with
// its threads' own multiplications. How many rows each expert has is known on the device alone.
constexpr int kSide = 128;

/// y = x w, y = x w^T, and x^T dy.
enum class ExpertUse { plain, transposed, outer };
/// The sum's index is the row of a factor in memory, not the column.
template <ExpertUse kUse>
constexpr bool kAcrossA = kUse == ExpertUse::outer;
template <ExpertUse kUse>
constexpr bool kAcrossB = kUse != ExpertUse::transposed;

/// Where both factors, with rows lda and ldb apart, and the tile in c, with rows n apart, begin. A tile may
/// have no rows.
template <class T>
struct ExpertTile {
  const T *a, *b;
  Index lda, ldb, terms, at_c;
  int rows, columns;
};
__device__ inline int within_side(Index count) { return static_cast<int>(min(count, Index{kSide})); }

/// The most tiles of one column: each expert's last one may be a part, and some have no rows.
template <ExpertUse kUse>
Index tiles_down(const ExpertProducts& s) {
  return kUse == ExpertUse::outer ? s.experts * tiles_of(s.k, kSide) : s.rows / kSide + s.experts;
}
/// This block's tile; neighbours share rows.
template <ExpertUse kUse, class T>
__device__ ExpertTile<T> tile_of_block(const ExpertProducts& s, const std::int32_t* starts, const T* a,
                                       const T* b) {
  const Index across = tiles_of(s.n, kSide), down = blockIdx.x / across, column = blockIdx.x % across * kSide;
  const int columns = within_side(s.n - column);
  if constexpr (kUse == ExpertUse::outer) {
    const Index tiles = tiles_of(s.k, kSide), expert = down / tiles, first = down % tiles * kSide,
                start = starts[expert];
    return {a + start * s.k + first,
            b + start * s.n + column,
            s.k,
            s.n,
            starts[expert + 1] - start,
            (expert * s.k + first) * s.n + column,
            within_side(s.k - first),
            columns};
  } else {
    // Expert e has the numbers from starts[e] / kSide + e on: never fewer than its tiles, at most one more.
    const auto first_number = [&](Index e) { return starts[e] / kSide + e; };
    Index expert = 0;
    for (Index end = s.experts; end - expert > 1;) {
      const Index middle = (expert + end) / 2;
      (first_number(middle) <= down ? expert : end) = middle;
    }
    const Index first = starts[expert] + (down - first_number(expert)) * kSide;
    const T* const matrix = b + expert * s.n * s.k;
    return {a + first * s.k,
            matrix + (kAcrossB<kUse> ? column : column * s.k),
            s.k,
            kAcrossB<kUse> ? s.n : s.k,
            s.k,
            first * s.n + column,
            within_side(starts[expert + 1] - first),
            columns};
  }
}

// Threads multiply: 16 x 16 of them, each for 8 x 8 sums in four groups.
constexpr int kTerms = 8, kGroup = 4, kGroups = kSide / kGroup;
/// A part of a factor, of kTerms terms; of 33 groups, so that rows begin in different banks.
template <class W>
using SharedFactor = Pack<W, kGroup>[kTerms][kGroups + 1];

/// A thread's numbers of a part: neighbours in memory belong to neighbouring threads.
template <bool kAcross, class T>
struct LoadedFactor {
  static constexpr int kCount = kSide * kTerms / kBlock;
  static constexpr int kInRow = kAcross ? kSide : kTerms, kStep = kBlock / kInRow;
  T of[kCount];

  /// Loads numbers of `own` rows or columns and of `terms` more terms, with zeros beyond them.
  __device__ void load(const T* from, Index stride, int own, Index terms) {
    const int row = static_cast<int>(threadIdx.x) / kInRow, column = static_cast<int>(threadIdx.x) % kInRow;
    const int there = static_cast<int>(min(terms, Index{kTerms})), rows = kAcross ? there : own,
              width = kAcross ? own : there;
    const int last = column < width ? rows - row : 0;
    from += row * stride + column;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      of[i] = i * kStep < last ? *from : static_cast<T>(0.0f);
      from += kStep * stride;
    }
  }
  template <class W>
  __device__ void store(SharedFactor<W>& to) const {
    const int row = static_cast<int>(threadIdx.x) / kInRow, column = static_cast<int>(threadIdx.x) % kInRow;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int at = row + i * kStep, own = kAcross ? column : at, term = kAcross ? at : column;
      to[term][own / kGroup].of[own % kGroup] = static_cast<W>(of[i]);
    }
  }
};

template <ExpertUse kUse, class T, class C>
__global__ void __launch_bounds__(kBlock, sizeof(T) == 4 ? 2 : 1)
    expert_products_kernel(ExpertProducts s, const std::int32_t* starts, const T* a, const T* b, Write<C> c) {
  using W = Wide<T>;
  __shared__ SharedFactor<W> of_a, of_b;
  const ExpertTile<T> tile = tile_of_block<kUse>(s, starts, a, b);
  if (tile.rows <= 0) return;  // the whole block
  const int row = static_cast<int>(threadIdx.x) / 16, column = static_cast<int>(threadIdx.x) % 16;
  W sums[8][8] = {};
  LoadedFactor<kAcrossA<kUse>, T> next_a;
  LoadedFactor<kAcrossB<kUse>, T> next_b;
  const auto load = [&](Index term) {
    const Index left = tile.terms - term;
    next_a.load(tile.a + (kAcrossA<kUse> ? term * tile.lda : term), tile.lda, tile.rows, left);
    next_b.load(tile.b + (kAcrossB<kUse> ? term * tile.ldb : term), tile.ldb, tile.columns, left);
  };
  load(0);
  for (Index term = 0; term < tile.terms; term += kTerms) {
    next_a.store(of_a);
    next_b.store(of_b);
    __syncthreads();
    load(term + kTerms);
#pragma unroll
    for (int k = 0; k < kTerms; ++k) {
      const Pack<W, kGroup> x[2] = {of_a[k][row], of_a[k][16 + row]},
                            y[2] = {of_b[k][column], of_b[k][16 + column]};
#pragma unroll
      for (int i = 0; i < 64; ++i)
        sums[i / 8][i % 8] += x[i / 32].of[i / 8 % kGroup] * y[i % 8 / kGroup].of[i % kGroup];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    const int own_row = i / 32 * 64 + row * kGroup + i / 8 % kGroup,
              own_column = i % 8 / kGroup * 64 + column * kGroup + i % kGroup;
    if (own_row < tile.rows && own_column < tile.columns)
      c.put(tile.at_c + own_row * s.n + own_column, sums[i / 8][i % 8]);
  }
}

// Tensor cores multiply: 2 x 2 warps, each for 64 x 64 sums.
constexpr int kMmaThreads = 128, kDepth = 64, kStages = 3, kPart = kSide * kDepth;
constexpr std::size_t kMmaBytes = 2 * kStages * kPart * sizeof(BFloat16);

/// A part of a factor in shared memory, of kDepth terms, with rows as in memory. The position of piece p of
/// row r, of 8 numbers, is p ^ r % 8: one piece of eight rows, and eight of one row, are in different banks.
template <bool kAcross>
struct MmaPart {
  static constexpr int kRows = kAcross ? kDepth : kSide, kWidth = kPart / kRows, kPieces = kWidth / 8;

  /// Begins to copy what is there of `own` rows or columns and of `terms` more terms, and zeros for others.
  __device__ static void copy(BFloat16* part, const BFloat16* from, Index stride, int own, Index terms) {
    constexpr int kStep = kMmaThreads / kPieces;
    static_assert(kStep % 8 == 0, "all pieces of a thread have one position");
    const int row = static_cast<int>(threadIdx.x) / kPieces, piece = static_cast<int>(threadIdx.x) % kPieces;
    const int there = static_cast<int>(min(terms, Index{kDepth})), rows = kAcross ? there : own,
              width = kAcross ? own : there;
    const int last = 8 * piece < width ? rows - row : 0;
    from += row * stride + 8 * piece;
    part += row * kWidth + 8 * (piece ^ row % 8);
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) {
      copy_async_16(part + i * kWidth, from, i < last);  // what is missing is not read
      from += kStep * stride;
    }
  }
  /// Loads 16 rows of a, or columns of b, from `own` on, of 16 terms.
  template <bool kIsB>
  __device__ static void load(unsigned (&fragment)[4], const BFloat16* part, int own, int term) {
    const int lane = own_lane(), row = kAcross == kIsB ? lane % 16 : lane % 8 + lane / 16 * 8,
              piece = kAcross == kIsB ? lane / 16 : lane / 8 % 2;
    const BFloat16* const from = part + ((kAcross ? term : own) + row) * kWidth +
                                 8 * (((kAcross ? own : term) / 8 | piece) ^ lane % 8);
    if constexpr (kAcross)
      load_matrix_x4_transposed(fragment, from);
    else
      load_matrix_x4(fragment, from);
  }
};

template <ExpertUse kUse, class C>
__global__ void __launch_bounds__(kMmaThreads, 2)
    expert_products_mma_kernel(ExpertProducts s, const std::int32_t* starts, const BFloat16* a,
                               const BFloat16* b, Write<C> c) {
  using PartOfA = MmaPart<kAcrossA<kUse>>;
  using PartOfB = MmaPart<kAcrossB<kUse>>;
  const ExpertTile<BFloat16> tile = tile_of_block<kUse>(s, starts, a, b);
  if (tile.rows <= 0) return;  // the whole block
  BFloat16* const parts = dynamic_shared<BFloat16>();
  const auto copy = [&](Index step) {
    BFloat16* const part = parts + step % kStages * (2 * kPart);
    const Index term = step * kDepth, left = tile.terms - term;
    if (left > 0) {
      PartOfA::copy(part, tile.a + (kAcrossA<kUse> ? term * tile.lda : term), tile.lda, tile.rows, left);
      PartOfB::copy(part + kPart, tile.b + (kAcrossB<kUse> ? term * tile.ldb : term), tile.ldb, tile.columns,
                    left);
    }
    copy_async_commit();
  };
  for (int step = 0; step < kStages - 1; ++step) copy(step);
  const int row = own_warp() / 2 * 64, column = own_warp() % 2 * 64;
  float sums[4][8][4] = {};
  for (Index step = 0; step * kDepth < tile.terms; ++step) {
    copy_async_wait<kStages - 2>();
    __syncthreads();  // all threads' copies are there, and nobody reads the part before
    copy(step + kStages - 1);
    const BFloat16* const part = parts + step % kStages * (2 * kPart);
    unsigned of_a[2][4][4], of_b[2][4][4];  // loaded while the ones before are multiplied
    const auto load = [&](int term) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        PartOfA::template load<false>(of_a[term / 16 % 2][i], part, row + 16 * i, term);
        PartOfB::template load<true>(of_b[term / 16 % 2][i], part + kPart, column + 16 * i, term);
      }
    };
    load(0);
#pragma unroll
    for (int term = 0; term < kDepth; term += 16) {
      if (term + 16 < kDepth) load(term + 16);
      const auto &x = of_a[term / 16 % 2], &y = of_b[term / 16 % 2];
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int j = i % 8;
        mma_bf16(sums[i / 8][j], x[i / 8], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
  const auto for_each_pair = [&](auto&& use) {
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      const int own_row = row + own_lane() / 4 + 8 * (i / 8),
                own_column = column + own_lane() % 4 * 2 + 8 * (i % 8);
      if (own_row < tile.rows && own_column < tile.columns)
        use(tile.at_c + own_row * s.n + own_column, sums[i / 16][i % 8] + i / 8 % 2 * 2);
    }
  };
  if (c.add) {  // all that was there before is read at once
    for_each_pair([&](Index at, float* pair) {
      const Pack<float, 2> before = widened(load_pack<2>(c.to + at));
      pair[0] += before.of[0], pair[1] += before.of[1];
    });
  }
  for_each_pair([&](Index at, const float* pair) {
    store_pack(c.to + at, narrowed<C>(Pack<float, 2>{{pair[0], pair[1]}}));
  });
}

template <ExpertUse kUse, class T, class C>
void launch_products(Cuda on, const ExpertProducts& s, const std::int32_t* starts, const T* a, const T* b,
                     Write<C> c) {
  const Index blocks = tiles_down<kUse>(s) * tiles_of(s.n, kSide);
  if constexpr (std::is_same<T, BFloat16>::value) {
    if (s.n % 8 == 0 && s.k % 8 == 0 && are_packed(a, b, c.to)) {
      launch(on, "expert_products_mma", expert_products_mma_kernel<kUse, C>,
             Grid(blocks, kMmaThreads, kMmaBytes), s, starts, a, b, c);
      return;
    }
  }
  launch(on, "expert_products", expert_products_kernel<kUse, T, C>, blocks, s, starts, a, b, c);
}

}  // namespace

template <class T>
void multiply_by_expert(Cuda on, const ExpertProducts& s, const std::int32_t* starts, const T* x, const T* w,
                        Write<T> y) {
  if (s.rows == 0) return;
  if (s.transposed)
    launch_products<ExpertUse::transposed>(on, s, starts, x, w, y);
  else
    launch_products<ExpertUse::plain>(on, s, starts, x, w, y);
}

template <class T>
void outer_by_expert(Cuda on, const ExpertProducts& s, const std::int32_t* starts, const T* a, const T* b,
                     Write<Wide<T>> c) {
  launch_products<ExpertUse::outer>(on, s, starts, a, b, c);
}

TAPEFORMER_CUDA_KERNEL(multiply_by_expert);
TAPEFORMER_CUDA_KERNEL(outer_by_expert);

}  // namespace tapeformer::kernels
