#pragma once

#include <tapeformer/autograd/kernels/cpu/simd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace tapeformer::kernels {

// Products of packed blocks in the L1 and L2 caches. A library's GEMM spends a microsecond before its first
// multiplication, more than a whole product here may take.

/// `count` rounded up to whole vectors.
template <class T>
constexpr Index padded(Index count) {
  return (count + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}

/// Distance of the rows of a packed block: whole vectors, but not a multiple of 512 bytes, which would map
/// its columns to few sets of the cache.
template <class T>
constexpr Index leading(Index columns) {
  const Index whole = padded<T>(columns);
  return whole + (whole * static_cast<Index>(sizeof(T)) % 512 == 0 ? kLanes<T> : 0);
}

/// Element (i, k) of a product's left side is data[i * row + k * step].
template <class T>
struct LeftOperand {
  const T* data;
  Index row, step;
};

/// A block and the distance of its rows.
template <class T>
struct Block {
  T* data;
  Index row;
};

constexpr bool kManyRegisters = kLanes<float> == 16;  // AVX-512 has 32 of them, AVX2 16
constexpr Index kMostVectors = kManyRegisters ? 4 : 2, kMostRows = 12, kSums = kManyRegisters ? 24 : 12;

template <class T>
using StripProduct = void (*)(Index depth, LeftOperand<T> a, Block<const T> b, T* c, Index c_row, bool add);

/// c [rows, vectors] in registers: each vector of b is used for all rows, each element of a for all vectors.
/// The old value of c is added last, so that the rounding error of long sums grows with their blocks, not
/// with their terms.
template <class T, int rows, int vectors>
void strip_product(Index depth, LeftOperand<T> a, Block<const T> b, T* c, Index c_row, bool add) {
  Lanes<T> sums[rows][vectors];
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[r][v] = Lanes<T>(T(0));
  }
  for (Index k = 0; k < depth; ++k) {
    const T *left = a.data + k * a.step, *right = b.data + k * b.row;
    if (k % kLanes<T> == 0)  // into the L2 cache: a matrix from memory then costs 17 % less
      for (int r = 0; r < rows; ++r) __builtin_prefetch(left + (r + rows) * a.row, 0, 2);
    Lanes<T> line[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) line[v] = Lanes<T>::load_unaligned(right + v * kLanes<T>);
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      const Lanes<T> factor(left[r * a.row]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v] = xsimd::fma(factor, line[v], sums[r][v]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      T* to = c + r * c_row + v * kLanes<T>;
      (add ? Lanes<T>::load_unaligned(to) + sums[r][v] : sums[r][v]).store_unaligned(to);
    }
  }
}

constexpr Index most_rows(Index vectors) { return std::min(kMostRows, kSums / vectors); }

template <class T, int vectors, int... rows>
constexpr std::array<StripProduct<T>, kMostRows> strip_products(std::integer_sequence<int, rows...>) {
  return {strip_product<T, rows + 1, vectors>...};
}

template <class T, int... vectors>
constexpr auto all_strip_products(std::integer_sequence<int, vectors...>) {
  return std::array<std::array<StripProduct<T>, kMostRows>, kMostVectors>{strip_products<T, vectors + 1>(
      std::make_integer_sequence<int, static_cast<int>(most_rows(vectors + 1))>{})...};
}

/// c [rows, columns] = a b, or that added to c. Columns are rounded up to whole vectors in b and c.
template <class T>
void block_product(Index rows, Index columns, Index depth, LeftOperand<T> a, Block<const T> b, T* c,
                   Index c_row, bool add) {
  static constexpr auto kStrips =
      all_strip_products<T>(std::make_integer_sequence<int, static_cast<int>(kMostVectors)>{});
  for (Index j = 0; j < columns; j += kMostVectors * kLanes<T>) {
    const Index vectors = std::min(kMostVectors, padded<T>(columns - j) / kLanes<T>);
    const Index most = most_rows(vectors);
    for (Index i = 0; i < rows; i += most) {
      const auto strip = kStrips[static_cast<std::size_t>(vectors - 1)]
                                [static_cast<std::size_t>(std::min(most, rows - i) - 1)];
      strip(depth, {a.data + i * a.row, a.row, a.step}, {b.data + j, b.row}, c + i * c_row + j, c_row, add);
    }
  }
}

/// to [rows, width] = scale * from; zeros if `real` is given and 0 there, and up to whole vectors.
template <class T>
void pack_rows(Index rows, Index width, const T* from, Index from_row, const std::uint8_t* real, T scale,
               T* to, Index to_row) {
  const Lanes<T> factor(scale);
  for (Index i = 0; i < rows; ++i) {
    const T* source = from + i * from_row;
    T* line = to + i * to_row;
    if (real != nullptr && real[i] == 0) {
      std::fill(line, line + padded<T>(width), T(0));
      continue;
    }
    Index j = 0;
    for (; j + kLanes<T> <= width; j += kLanes<T>)
      (factor * Lanes<T>::load_unaligned(source + j)).store_unaligned(line + j);
    if (j < width) (factor * load_part(source + j, width - j, T(0))).store_unaligned(line + j);
  }
}

/// to [columns, rows] = from [rows, columns], in blocks of four by four, or of two by two where vectors have
/// two lanes; elements beyond the ends are copied too.
template <class T>
void transpose_block(Index rows, Index columns, const T* from, Index from_row, T* to, Index to_row) {
  if constexpr (kLanes<T> == 2) {
    for (Index i = 0; i < rows; i += 2) {
      for (Index j = 0; j < columns; j += 2) {
        const T* block = from + i * from_row + j;
        const auto x = Lanes<T>::load_unaligned(block), next = Lanes<T>::load_unaligned(block + from_row);
        xsimd::zip_lo(x, next).store_unaligned(to + j * to_row + i);
        xsimd::zip_hi(x, next).store_unaligned(to + (j + 1) * to_row + i);
      }
    }
  } else {
    using Four [[gnu::vector_size(4 * sizeof(T))]] = T;
    const auto low = [](Four a, Four b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); };
    const auto high = [](Four a, Four b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); };
    const auto first = [](Four a, Four b) { return __builtin_shufflevector(a, b, 0, 1, 4, 5); };
    const auto second = [](Four a, Four b) { return __builtin_shufflevector(a, b, 2, 3, 6, 7); };
    for (Index i = 0; i < rows; i += 4) {
      for (Index j = 0; j < columns; j += 4) {
        Four x[4];
        for (Index r = 0; r < 4; ++r) std::memcpy(&x[r], from + (i + r) * from_row + j, sizeof(Four));
        const Four low0 = low(x[0], x[1]), low1 = low(x[2], x[3]);
        const Four high0 = high(x[0], x[1]), high1 = high(x[2], x[3]);
        const Four y[4] = {first(low0, low1), second(low0, low1), first(high0, high1), second(high0, high1)};
        for (Index r = 0; r < 4; ++r) std::memcpy(to + (j + r) * to_row + i, &y[r], sizeof(Four));
      }
    }
  }
}

}  // namespace tapeformer::kernels
