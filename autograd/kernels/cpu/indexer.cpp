#include <tapeformer/autograd/kernels/cpu/gathered_keys.h>

#include <algorithm>
#include <functional>

namespace tapeformer::kernels {
namespace {

/// scores [columns] = scale sum_h weights[h] relu(products[h]), up to the end of the last vector.
template <class T>
void weigh_products(const IndexSizes& s, Index columns, const T* products, Index row, const T* weights,
                    T* scores) {
  const Lanes<T> zero(T(0)), scale(static_cast<T>(s.scale));
  for (Index i = 0; i < columns; i += kLanes<T>) {
    Lanes<T> sum(T(0));
    for (Index h = 0; h < s.heads; ++h)
      sum = xsimd::fma(Lanes<T>(weights[h]),
                       xsimd::max(Lanes<T>::load_unaligned(products + h * row + i), zero), sum);
    (scale * sum).store_unaligned(scores + i);
  }
}

/// Writes the places of the `top_k` largest of scores [count] that may be seen, ascending, of equal ones
/// the first, and returns their number. NaN counts as `nan`. `values` is memory for `count` scores.
template <class T>
Index write_largest(Index count, const T* scores, const bool* may, T nan, Index top_k, T* values,
                    std::int32_t* places) {
  const auto is_seen = [&](Index i) { return may == nullptr || may[i]; };
  const auto value = [&](Index i) { return scores[i] == scores[i] ? scores[i] : nan; };
  Index seen = 0, chosen = 0;
  for (Index i = 0; i < count; ++i)
    if (is_seen(i)) values[seen++] = value(i);
  T least = kMinusInfinity<T>;
  Index equal = top_k;  // places for scores that equal the least chosen one
  if (seen > top_k) {
    std::nth_element(values, values + top_k - 1, values + seen, std::greater<T>());
    least = values[top_k - 1];
    equal -= std::count_if(values, values + top_k - 1, [&](T x) { return x > least; });
  } else {
    equal = seen;
  }
  for (Index i = 0; i < count && chosen < top_k; ++i) {
    if (!is_seen(i)) continue;
    const T own = value(i);
    if (own > least || (own == least && equal-- > 0)) places[chosen++] = static_cast<std::int32_t>(i);
  }
  return chosen;
}

/// to [width, row]: keys [count, width] transposed. `strip` is memory for a block of them.
template <class T>
void pack_keys(Index count, Index width, const T* keys, T* strip, T* to, Index row) {
  const Index strip_row = padded<T>(width), whole = padded<T>(count);
  pack_rows<T>(count, width, keys, width, nullptr, T(1), strip, strip_row);
  std::fill(strip + count * strip_row, strip + whole * strip_row, T(0));
  transpose_block(whole, padded<T>(width), strip, strip_row, to, row);
}

/// The scores of some queries of one sequence with all keys, and their choice.
template <class T>
class ChoiceBlock {
 public:
  ChoiceBlock(const KeysOfQueries& keys, const IndexSizes& sizes)
      : keys_(keys),
        s_(sizes),
        score_row_(padded<T>(keys.keys) + kKeyBlock),
        tile_row_(leading<T>(kKeyBlock)) {
    Layout<T> memory;
    strip_ = memory.take(kKeyBlock * padded<T>(sizes.width));
    key_t_ = memory.take(padded<T>(sizes.width) * tile_row_);
    products_ = memory.take(kQueryBlock * sizes.heads * tile_row_);
    scores_ = memory.take(kQueryBlock * score_row_), values_ = memory.take(keys.keys);
    size_ = memory.size();
  }
  Index memory() const { return size_; }
  Index blocks() const { return blocks_of(keys_.queries, kQueryBlock); }

  void choose(Index unit, const T* query, const T* key, const T* weights, T* memory) const {
    const Index b = unit / blocks(), first = unit % blocks() * kQueryBlock, H = s_.heads, D = s_.width,
                rows = std::min(kQueryBlock, keys_.queries - first), row = b * keys_.queries + first;
    KeyRange all{keys_.keys, 0};
    for (Index i = row; i < row + rows; ++i) {
      const KeyRange own = range(i);
      if (own.size() > 0) all = {std::min(all.from, own.from), std::max(all.to, own.to)};
    }
    for (Index s = all.from; s < all.to; s += kKeyBlock) {
      const Index columns = std::min(kKeyBlock, all.to - s);
      pack_keys(columns, D, key + (b * keys_.keys + s) * D, memory + strip_, memory + key_t_, tile_row_);
      block_product<T>(rows * H, columns, D, {query + row * H * D, D, 1}, {memory + key_t_, tile_row_},
                       memory + products_, tile_row_, false);
      for (Index i = 0; i < rows; ++i)
        weigh_products(s_, columns, memory + products_ + i * H * tile_row_, tile_row_,
                       weights + (row + i) * H, memory + scores_ + i * score_row_ + s);
    }
    for (Index i = 0; i < rows; ++i) {
      const KeyRange own = range(row + i);
      std::int32_t* const chosen = keys_.chosen + (row + i) * keys_.top_k;
      const bool* const may = s_.key_mask != nullptr ? s_.key_mask + b * keys_.keys + own.from : nullptr;
      const Index count = write_largest(own.size(), memory + scores_ + i * score_row_ + own.from, may,
                                        kMinusInfinity<T>, keys_.top_k, memory + values_, chosen);
      const Index start = b * keys_.keys + own.from;
      for (Index j = 0; j < count; ++j) chosen[j] += static_cast<std::int32_t>(start);
      std::fill(chosen + count, chosen + keys_.top_k, static_cast<std::int32_t>(keys_.all_keys()));
    }
  }

 private:
  KeyRange range(Index row) const {
    if (s_.from == nullptr) return {0, keys_.keys};
    const KeyRange own{s_.from[row], s_.to[row]};
    return own.size() > 0 ? own : KeyRange{};
  }

  const KeysOfQueries& keys_;
  const IndexSizes& s_;
  Index score_row_, tile_row_, size_ = 0;
  Index strip_, key_t_, products_, scores_, values_;
};

/// The scores of one query with its own keys.
template <class T>
class IndexQuery {
 public:
  IndexQuery(const KeysOfQueries& keys, const IndexSizes& sizes)
      : keys_(keys), s_(sizes), key_row_(leading<T>(sizes.width)), row_(leading<T>(keys.top_k)) {
    Layout<T> memory;
    gathered_ = memory.take(padded<T>(keys.top_k) * key_row_),
    key_t_ = memory.take(padded<T>(sizes.width) * row_);
    products_ = memory.take(sizes.heads * row_), scores_ = memory.take(row_);
    query_ = memory.take(sizes.heads * key_row_), sum_ = memory.take(sizes.heads * key_row_);
    size_ = memory.size();
  }
  Index memory() const { return size_; }
  Index row() const { return key_row_; }

  void forward(Index row, const T* query, const T* key, const T* weights, T* scores, T* memory) const {
    const Index count = keys_.count(row);
    multiply(row, count, query, key, memory);
    weigh_products(s_, count, memory + products_, row_, weights + row * s_.heads, memory + scores_);
    T* const own = scores + row * keys_.top_k;
    std::copy_n(memory + scores_, count, own);
    std::fill(own + count, own + keys_.top_k, static_cast<T>(kNoScore));
  }

  void backward(Index row, const T* query, const T* key, const T* weights, const T* dscores, Write<T> dquery,
                Write<T> dweights, T* dgathered, T* memory) const {
    const Index count = keys_.count(row), H = s_.heads, D = s_.width;
    const T* const own = dscores + row * keys_.top_k;
    const Lanes<T> zero(T(0)), scale(static_cast<T>(s_.scale));
    multiply(row, count, query, key, memory);
    for (Index h = 0; h < H; ++h) {
      T* const products = memory + products_ + h * row_;
      if (dweights)
        dweights.put(row * H + h, sum_simd<T>(
                                      count,
                                      [&](const Lanes<T>& product, const Lanes<T>& d) {
                                        return scale * d * xsimd::max(product, zero);
                                      },
                                      products, own));
      const Lanes<T> factor = scale * Lanes<T>(weights[row * H + h]);
      map_simd(
          0, count, products,
          [&](const Lanes<T>& product, const Lanes<T>& d) {
            return xsimd::select(product > zero, factor * d, zero);
          },
          static_cast<const T*>(products), own);
    }
    if (dquery) {
      std::fill_n(memory + sum_, H * key_row_, T(0));
      for (Index j = 0; j < count; j += kKeyBlock)
        block_product<T>(H, D, std::min(kKeyBlock, count - j), {memory + products_ + j, row_, 1},
                         {memory + gathered_ + j * key_row_, key_row_}, memory + sum_, key_row_, true);
      for (Index h = 0; h < H; ++h)
        write_scaled(D, T(1), memory + sum_ + h * key_row_,
                     Write<T>{dquery.to + (row * H + h) * D, dquery.add});
    }
    if (dgathered == nullptr) return;
    pack_rows<T>(H, D, query + row * H * D, D, nullptr, T(1), memory + query_, key_row_);
    block_product<T>(count, D, H, {memory + products_, 1, row_}, {memory + query_, key_row_}, dgathered,
                     key_row_, false);
  }

 private:
  /// The products [H, keys] of the query's heads with its keys.
  void multiply(Index row, Index count, const T* query, const T* key, T* memory) const {
    const Index H = s_.heads, D = s_.width, whole = padded<T>(count);
    T* const gathered = memory + gathered_;
    gather(keys_, row, count, D, key, gathered, key_row_);
    std::fill(gathered + count * key_row_, gathered + whole * key_row_, T(0));
    transpose_block(whole, padded<T>(D), gathered, key_row_, memory + key_t_, row_);
    block_product<T>(H, count, D, {query + row * H * D, D, 1}, {memory + key_t_, row_}, memory + products_,
                     row_, false);
  }

  const KeysOfQueries& keys_;
  const IndexSizes& s_;
  Index key_row_, row_, size_ = 0;
  Index gathered_, key_t_, products_, scores_, query_, sum_;
};

double work_of(const KeysOfQueries& keys, const IndexSizes& s, Index of_row) {
  return static_cast<double>(keys.rows() * of_row * s.heads * s.width);
}

}  // namespace

template <class T>
void choose_keys(Cpu, const KeysOfQueries& keys, const IndexSizes& sizes, const T* query, const T* key,
                 const T* weights) {
  const ChoiceBlock<T> block(keys, sizes);
  for_units<ChoiceBlock<T>, T>(
      keys.batch * block.blocks(), work_of(keys, sizes, keys.keys), block.memory(),
      [&](Index unit, T* memory) { block.choose(unit, query, key, weights, memory); });
}

template <class T>
void choose_largest(Cpu, const KeysOfQueries& keys, const T* scores) {
  struct Values {};
  const Index S = keys.keys;
  parallel_ranges(keys.rows(), S, [&](Index from, Index to) {
    T* const values = thread_memory<Values, T>(S);
    for (Index row = from; row < to; ++row) {
      const Index start = row / keys.queries * S;
      std::int32_t* const chosen = keys.chosen + row * keys.top_k;
      write_largest(S, scores + row * S, nullptr, -kMinusInfinity<T>, keys.top_k, values, chosen);
      for (Index i = 0; i < keys.top_k; ++i) chosen[i] += static_cast<std::int32_t>(start);
    }
  });
}

template <class T>
void index_scores_forward(Cpu, const KeysOfQueries& keys, const IndexSizes& sizes, const T* query,
                          const T* key, const T* weights, Wide<T>* scores) {
  const IndexQuery<T> one(keys, sizes);
  for_units<IndexQuery<T>, T>(
      keys.rows(), work_of(keys, sizes, keys.top_k), one.memory(),
      [&](Index row, T* memory) { one.forward(row, query, key, weights, scores, memory); });
}

template <class T>
void index_scores_backward(Cpu, const KeysOfQueries& keys, const IndexSizes& sizes, const T* query,
                           const T* key, const T* weights, const Wide<T>* dscores, Write<T> dquery,
                           Write<T> dkey, Write<T> dweights) {
  const IndexQuery<T> one(keys, sizes);
  add_to_chosen<IndexSizes, T>(keys, sizes.heads * sizes.width, one.memory(), one.row(), sizes.width, dkey,
                               [&](Index row, T* dgathered, T* memory) {
                                 one.backward(row, query, key, weights, dscores, dquery, dweights, dgathered,
                                              memory);
                               });
}

TAPEFORMER_CPU_KERNEL(choose_keys);
TAPEFORMER_CPU_KERNEL(choose_largest);
TAPEFORMER_CPU_KERNEL(index_scores_forward);
TAPEFORMER_CPU_KERNEL(index_scores_backward);

}  // namespace tapeformer::kernels
