#include <tapeformer/autograd/kernels/cuda/map.h>
#include <tapeformer/autograd/kernels/rotary.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

/// Fits into a kernel's arguments.
struct Frequencies {
  static constexpr Index kMost = 128;
  double of_pair[kMost];
};

/// Pairs [first, first + some) of every position.
template <class T>
__global__ void rotary_table_kernel(TokenPositions positions, Index pairs, Index first, Index some,
                                    Frequencies frequencies, T* table) {
  for_each_index(positions.count * some, [&](Index i) {
    const Index p = i / some, pair = i % some;
    const Index position = positions.at != nullptr ? positions.at[p] : positions.first + p;
    const double angle = static_cast<double>(position) * frequencies.of_pair[pair];
    T* cosine = table + 2 * p * pairs + first + pair;
    cosine[0] = static_cast<T>(cos(angle));
    cosine[pairs] = static_cast<T>(sin(angle));
  });
}

/// Turns the pair (a, b) by the angle with this cosine and sine. The fused operation is written out, so that
/// all kernels compute the same bits.
template <class W>
struct Pair {
  W first, second;
};
template <class W>
__device__ Pair<W> turned(W a, W b, W cosine, W sine) {
  return {fma(a, cosine, -b * sine), fma(b, cosine, a * sine)};
}

/// A thread rotates a pack of neighbouring pairs, or one of first and one of second components. After the
/// heads, `rest` packs of each row are copied.
template <RotaryLayout layout, class T>
__global__ void rotate_packs_kernel(Rotation s, int rest, const Wide<T>* table, const T* x, Write<T> y) {
  using W = Wide<T>;
  constexpr bool kNeighbours = layout == RotaryLayout::interleaved;
  constexpr int N = kPackSize<T>, kPairs = kNeighbours ? N / 2 : N;
  const int of_head = static_cast<int>(s.pairs) / kPairs, turned_items = static_cast<int>(s.heads) * of_head;
  const W sign(s.inverse ? -1 : 1);
  for_each_index(s.rows * (turned_items + rest), [&](Index i) {
    const Division place = divide(i, turned_items + rest);
    const int item = static_cast<int>(place.remainder);
    const Index start = place.quotient * s.row_width;
    Pack<W, N> first, second;
    if (item >= turned_items) {
      const Index at = start + s.heads * s.head_width + (item - turned_items) * N;
      return put_pack(y, at, widened(load_pack<N>(x + at)));
    }
    const int pair = item % of_head * kPairs;
    const Index at = start + item / of_head * s.head_width + (kNeighbours ? 2 * pair : pair);
    const W* angles = table + divide(place.quotient, s.period).remainder * 2 * s.pairs + pair;
    const Pack<W, kPairs> cosine = load_pack<kPairs>(angles), sine = load_pack<kPairs>(angles + s.pairs);
    const Pack<W, N> own = widened(load_pack<N>(x + at));
    if constexpr (kNeighbours) {
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const Pair<W> result = turned(own.of[2 * j], own.of[2 * j + 1], cosine.of[j], sign * sine.of[j]);
        first.of[2 * j] = result.first;
        first.of[2 * j + 1] = result.second;
      }
      put_pack<N>(y, at, first);
    } else {
      const Pack<W, N> other = widened(load_pack<N>(x + at + s.pairs));
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const Pair<W> result = turned(own.of[j], other.of[j], cosine.of[j], sign * sine.of[j]);
        first.of[j] = result.first;
        second.of[j] = result.second;
      }
      put_pack<N>(y, at, first);
      put_pack<N>(y, at + s.pairs, second);
    }
  });
}

/// For any width and alignment of rows: one block per row, one pair per thread, and then one copied element.
template <class T>
__global__ void rotate_kernel(Rotation s, const Wide<T>* table, const T* x, Write<T> y) {
  using W = Wide<T>;
  const Index row = blockIdx.x, start = row * s.row_width;
  const W* cosine = table + row % s.period * 2 * s.pairs;
  const W sign(s.inverse ? -1 : 1);
  const bool interleaved = s.layout == RotaryLayout::interleaved;
  for (Index i = threadIdx.x; i < s.heads * s.pairs; i += blockDim.x) {
    const Index pair = i % s.pairs;
    const Index at = start + i / s.pairs * s.head_width + (interleaved ? 2 * pair : pair);
    const Index partner = at + (interleaved ? 1 : s.pairs);
    const W a = static_cast<W>(x[at]), b = static_cast<W>(x[partner]);
    const Pair<W> result = turned(a, b, cosine[pair], sign * cosine[s.pairs + pair]);
    y.put(at, result.first);
    y.put(partner, result.second);
  }
  for (Index i = threadIdx.x; x != y.to && i < s.row_width; i += blockDim.x) {
    if (i >= s.heads * s.head_width || i % s.head_width >= 2 * s.pairs)
      y.put(start + i, static_cast<W>(x[start + i]));
  }
}

/// True if rotate_packs_kernel can do it.
template <class T>
bool has_packs(const Rotation& s, bool in_place) {
  constexpr Index N = kPackSize<T>;
  const Index step = s.layout == RotaryLayout::interleaved ? N / 2 : N;
  return s.row_width % N == 0 && s.head_width % N == 0 && s.pairs % step == 0 &&
         (in_place || 2 * s.pairs == s.head_width);
}

}  // namespace

template <class T>
void rotary_table(Cuda on, const TokenPositions& positions, Index pairs, const double* frequencies,
                  T* table) {
  for (Index first = 0; first < pairs; first += Frequencies::kMost) {
    const Index some = std::min(Frequencies::kMost, pairs - first);
    Frequencies part;
    std::copy_n(frequencies + first, some, part.of_pair);
    launch(on, "rotary_table", rotary_table_kernel<T>, blocks_for(positions.count * some), positions, pairs,
           first, some, part, table);
  }
}

template <class T>
void rotate(Cuda on, const Rotation& s, const Wide<T>* table, const T* x, Write<T> y) {
  if (s.row_width == 0) return;
  const bool in_place = x == y.to;
  if (!has_packs<T>(s, in_place) || !are_packed(table, x, y.to)) {
    launch(on, "rotate", rotate_kernel<T>, s.rows, s, table, x, y);
    return;
  }
  const Index rest = in_place ? 0 : (s.row_width - s.heads * s.head_width) / kPackSize<T>;
  const bool interleaved = s.layout == RotaryLayout::interleaved;
  const Index items = s.heads * s.pairs / (interleaved ? kPackSize<T> / 2 : kPackSize<T>)+rest;
  launch(on, "rotate",
         interleaved ? rotate_packs_kernel<RotaryLayout::interleaved, T>
                     : rotate_packs_kernel<RotaryLayout::half_split, T>,
         blocks_for(s.rows * items), s, rest, table, x, y);
}

TAPEFORMER_WIDE_KERNEL(Cuda, rotary_table);
TAPEFORMER_CUDA_KERNEL(rotate);

}  // namespace tapeformer::kernels
