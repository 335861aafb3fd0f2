#pragma once

#include <tapeformer/autograd/kernels/cpu/attention_tile.h>
#include <tapeformer/autograd/kernels/cpu/simd_math.h>

#include <algorithm>

namespace tapeformer::kernels {

// From raw scores to what exp or a sigmoid is taken of.

/// Which derivatives of the score function to write.
enum class Slopes { none, by_score, by_parameter };

/// Applies the score function, up to the end of the last vector. The slopes of masked pairs may be anything.
template <class T>
void apply_function(const AttentionShape& s, const T* parameters, const Tile& tile, T* scores, Index row,
                    Slopes kind, T* slopes) {
  const Lanes<T> parameter(parameters[tile.head * s.parameter_stride]);
  with_function(s.function, [&](auto function) {
    for (Index t = 0; t < tile.rows; ++t) {
      for (Index i = t * row; i < t * row + padded<T>(tile.columns); i += kLanes<T>) {
        const Lanes<T> score = Lanes<T>::load_unaligned(scores + i), value = function.value(score, parameter);
        value.store_unaligned(scores + i);
        if (kind == Slopes::none) continue;
        const ScoreSlopes<Lanes<T>> slope = function.slopes(score, parameter, value);
        (kind == Slopes::by_score ? slope.by_score : slope.by_parameter).store_unaligned(slopes + i);
      }
    }
  });
}

/// Calls each(t, low, high, entry) for the rows of a tile that see keys of it: its columns [low, high), of
/// which the first one's relative bias is entry `entry` of a head's.
template <class F>
void each_relative_row(const AttentionShape& s, const Tile& tile, const F& each) {
  for (Index t = 0; t < tile.rows; ++t) {
    const Index query = tile.query + t;
    const KeyRange range = keys_of(s, tile.b, query);
    const Index low = std::max<Index>(range.from - tile.key, 0),
                high = std::min(range.to - tile.key, tile.columns);
    if (low >= high) continue;
    each(t, low, high, tile.key + low - s.positions[tile.b * s.queries + query] + s.reach);
  }
}

/// Applies the function, the biases and the masks to raw scores.
template <class T>
void modify_scores(const AttentionShape& s, const AttentionOperands<T>& x, const Tile& tile, T* scores,
                   Index row, Slopes kind = Slopes::none, T* slopes = nullptr) {
  if (s.function != ScoreFunction::none) apply_function(s, x.parameter, tile, scores, row, kind, slopes);
  if (x.relative != nullptr) {
    const T* const of_head = x.relative + tile.head * s.relative_stride;
    each_relative_row(s, tile, [&](Index t, Index low, Index high, Index entry) {
      combine_row(high - low, scores + t * row + low, of_head + entry, 1,
                  [](T score, T bias) { return score + bias; });
    });
  }
  mask_scores(s, x.bias, tile, scores, row);
}

/// a * b, and zero where a is, whatever b is.
template <class T>
Lanes<T> product_or_zero(const Lanes<T>& a, const Lanes<T>& b) {
  const Lanes<T> zero(T(0));
  return xsimd::select(a == zero, zero, a * b);
}

}  // namespace tapeformer::kernels
