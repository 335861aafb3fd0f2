#pragma once

#include <tapeformer/autograd/kernels/cpu/attention_tile.h>

#include <algorithm>

namespace tapeformer::kernels {

// The score of a query and a key, the only difference between these kinds of attention. Queries are rows
// [rows, D]; keys are packed and multiplied by key_scale, as rows [columns, D] or transposed [D, columns].
// The complete gradient of the packed keys is to be multiplied by key_scale again.

/// score = scale * query . key
template <class T>
struct DotScores {
  DotScores(const AttentionShape& shape, const T*)
      : width(shape.key_width), key_scale(static_cast<T>(shape.scale)) {}
  Index width;
  T key_scale;

  void scores(Index, Index rows, Index columns, Block<const T> queries, Block<T> transposed_keys,
              Block<T> to) const {
    block_product<T>(rows, columns, width, {queries.data, queries.row, 1},
                     {transposed_keys.data, transposed_keys.row}, to.data, to.row, false);
  }

  /// Adds the gradients of the packed queries and of the keys.
  void gradients(Index, Index rows, Index columns, Block<T> dscores, Block<T> queries, Block<T> keys,
                 Block<T> dqueries, Block<T> dkeys, T*) const {
    block_product<T>(rows, width, columns, {dscores.data, dscores.row, 1}, {keys.data, keys.row},
                     dqueries.data, dqueries.row, true);
    block_product<T>(columns, width, rows, {dscores.data, 1, dscores.row}, {queries.data, queries.row},
                     dkeys.data, dkeys.row, true);
  }
};

/// score = weight[head] . tanh(query + key)
/// Source:  Bahdanau et al. 2015, arXiv:1409.0473, appendix A.1.2
template <class T>
struct AdditiveScores {
  AdditiveScores(const AttentionShape& shape, const T* weights) : width(shape.key_width), weight(weights) {}
  Index width;
  const T* weight;
  T key_scale = T(1);

  void scores(Index head, Index rows, Index columns, Block<const T> queries, Block<T> transposed_keys,
              Block<T> to) const {
    constexpr Index kPart = 8;
    const T* factors = weight + head * width;
    for (Index t = 0; t < rows; ++t) {
      const T* query = queries.data + t * queries.row;
      for (Index s = 0; s < columns; s += kLanes<T>) {
        Lanes<T> sum(T(0));
        for (Index begin = 0; begin < width; begin += kPart) {  // a sum of sums rounds less
          Lanes<T> part(T(0));
          for (Index d = begin; d < std::min(begin + kPart, width); ++d) {
            const auto key = Lanes<T>::load_unaligned(transposed_keys.data + d * transposed_keys.row + s);
            part = xsimd::fma(Lanes<T>(factors[d]), xsimd::tanh(Lanes<T>(query[d]) + key), part);
          }
          sum += part;
        }
        sum.store_unaligned(to.data + t * to.row + s);
      }
    }
  }

  /// Adds the gradients of the queries, the keys and this head's weight; computes each tanh again.
  void gradients(Index head, Index rows, Index columns, Block<T> dscores, Block<T> queries, Block<T> keys,
                 Block<T> dqueries, Block<T> dkeys, T* dweight) const {
    for (Index d = 0; d < width; d += kLanes<T>) {
      const Lanes<T> factor = load_part(weight + head * width + d, std::min(kLanes<T>, width - d), T(0));
      Lanes<T> of_weight(T(0));
      for (Index t = 0; t < rows; ++t) {
        const auto query = Lanes<T>::load_unaligned(queries.data + t * queries.row + d);
        const T* dscore = dscores.data + t * dscores.row;
        Lanes<T> of_query(T(0)), of_row(T(0));
        for (Index s = 0; s < columns; ++s) {
          if (dscore[s] == T(0)) continue;  // as for every key that the query does not see
          T* dkey = dkeys.data + s * dkeys.row + d;
          const Lanes<T> slope(dscore[s]);
          const Lanes<T> angle = xsimd::tanh(query + Lanes<T>::load_unaligned(keys.data + s * keys.row + d));
          const Lanes<T> gradient = slope * factor * (T(1) - angle * angle);
          of_query += gradient;
          of_row = xsimd::fma(slope, angle, of_row);
          (Lanes<T>::load_unaligned(dkey) + gradient).store_unaligned(dkey);
        }
        of_weight += of_row;
        T* dquery = dqueries.data + t * dqueries.row + d;
        (Lanes<T>::load_unaligned(dquery) + of_query).store_unaligned(dquery);
      }
      (Lanes<T>::load_unaligned(dweight + d) + of_weight).store_unaligned(dweight + d);
    }
  }
};

}  // namespace tapeformer::kernels
