#include <tapeformer/autograd/kernels/cpu/gathered_keys.h>
#include <tapeformer/autograd/kernels/cpu/simd_math.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

constexpr Index kDepth = 64;  // keys of a sum at a time, which stay in the L1 cache

/// to [columns, row] = scale * from [rows, columns] transposed, with zeros up to whole vectors.
template <class T>
void pack_transposed(Index rows, Index columns, const T* from, T scale, T* to) {
  const Index row = padded<T>(rows);
  for (Index c = 0; c < columns; ++c) {
    for (Index r = 0; r < rows; ++r) to[c * row + r] = scale * from[r * columns + c];
    std::fill(to + c * row + rows, to + (c + 1) * row, T(0));
  }
}

/// One query of all heads: its keys, and memory for its weights. Heads fill vectors: weights are [keys, H].
template <class T>
class SparseQuery {
 public:
  SparseQuery(const KeysOfQueries& keys, const SparseSizes& sizes)
      : keys_(keys),
        s_(sizes),
        columns_(padded<T>(sizes.heads)),
        row_(leading<T>(sizes.width)),
        value_row_(leading<T>(sizes.value_width)) {
    Layout<T> memory;
    gathered_ = memory.take(keys.top_k * row_);
    weights_ = memory.take(keys.top_k * columns_), dweights_ = memory.take(keys.top_k * columns_);
    query_t_ = memory.take(sizes.width * columns_), dy_t_ = memory.take(sizes.value_width * columns_);
    query_ = memory.take(sizes.heads * row_), dy_ = memory.take(sizes.heads * value_row_);
    sum_ = memory.take(sizes.heads * std::max(row_, value_row_));
    size_ = memory.size();
  }
  Index memory() const { return size_; }
  /// Distance of the rows of a gradient of gathered latents.
  Index row() const { return row_; }

  void forward(Index row, const T* query, const T* latents, T* y, T* shares, T* memory) const {
    const Index count = keys_.count(row), H = s_.heads, E = s_.value_width;
    T* const weights = memory + weights_;
    find_weights(row, count, query, latents, memory);
    weighted_sum(count, weights, E, memory, value_row_);
    copy_rows(E, memory + sum_, value_row_, T(1), Write<T>{y + row * H * E, false});
    if (shares == nullptr) return;
    T* const own = shares + row * keys_.top_k;
    for (Index j = 0; j < count; ++j) own[j] = total_simd(H, weights + j * columns_) / static_cast<T>(H);
    std::fill(own + count, own + keys_.top_k, T(0));
  }

  /// dgathered [keys, row()]: the gradients of the query's latents.
  void backward(Index row, const T* query, const T* latents, const T* dy, Write<T> dquery, T* dgathered,
                T* memory) const {
    const Index count = keys_.count(row), H = s_.heads, N = s_.width, E = s_.value_width;
    T *const weights = memory + weights_, *const dweights = memory + dweights_;
    find_weights(row, count, query, latents, memory);
    pack_transposed(H, E, dy + row * H * E, T(1), memory + dy_t_);
    block_product<T>(count, H, E, {memory + gathered_, row_, 1}, {memory + dy_t_, columns_}, dweights,
                     columns_, false);
    for (Index h = 0; h < columns_; h += kLanes<T>) {
      Lanes<T> sum(T(0));
      for (Index j = 0; j < count; ++j) sum = xsimd::fma(at(weights, j, h), at(dweights, j, h), sum);
      for (Index j = 0; j < count; ++j)
        (at(weights, j, h) * (at(dweights, j, h) - sum)).store_unaligned(dweights + j * columns_ + h);
    }
    const T scale = static_cast<T>(s_.scale);
    if (dquery) {
      weighted_sum(count, dweights, N, memory, row_);
      copy_rows(N, memory + sum_, row_, scale, Write<T>{dquery.to + row * H * N, dquery.add});
    }
    if (dgathered == nullptr) return;
    pack_rows<T>(H, N, query + row * H * N, N, nullptr, scale, memory + query_, row_);
    pack_rows<T>(H, E, dy + row * H * E, E, nullptr, T(1), memory + dy_, value_row_);
    block_product<T>(count, N, H, {dweights, columns_, 1}, {memory + query_, row_}, dgathered, row_, false);
    block_product<T>(count, E, H, {weights, columns_, 1}, {memory + dy_, value_row_}, dgathered, row_, true);
  }

 private:
  Lanes<T> at(const T* values, Index key, Index head) const {
    return Lanes<T>::load_unaligned(values + key * columns_ + head);
  }

  /// Gathers the query's latents, and computes the weights of all heads.
  void find_weights(Index row, Index count, const T* query, const T* latents, T* memory) const {
    const Index N = s_.width, H = s_.heads;
    gather(keys_, row, count, N, latents, memory + gathered_, row_);
    pack_transposed(H, N, query + row * H * N, static_cast<T>(s_.scale), memory + query_t_);
    T* const weights = memory + weights_;
    block_product<T>(count, H, N, {memory + gathered_, row_, 1}, {memory + query_t_, columns_}, weights,
                     columns_, false);
    for (Index h = 0; h < columns_; h += kLanes<T>) {
      Lanes<T> largest(kMinusInfinity<T>), total(T(0));
      for (Index j = 0; j < count; ++j) largest = xsimd::max(largest, at(weights, j, h));
      for (Index first = 0; first < count; first += kDepth) {
        Lanes<T> part(T(0));
        for (Index j = first; j < std::min(count, first + kDepth); ++j) {
          const Lanes<T> weight = exp_lanes(at(weights, j, h) - largest);
          weight.store_unaligned(weights + j * columns_ + h);
          part += weight;
        }
        total += part;
      }
      for (Index j = 0; j < count; ++j)
        (at(weights, j, h) / total).store_unaligned(weights + j * columns_ + h);
    }
  }

  /// The sums [H, width] of the latents, weighted by the factors [keys, H].
  void weighted_sum(Index count, const T* factors, Index width, T* memory, Index to_row) const {
    if (count == 0) std::fill_n(memory + sum_, s_.heads * to_row, T(0));
    for (Index j = 0; j < count; j += kDepth)
      block_product<T>(s_.heads, width, std::min(kDepth, count - j), {factors + j * columns_, 1, columns_},
                       {memory + gathered_ + j * row_, row_}, memory + sum_, to_row, j > 0);
  }

  void copy_rows(Index width, const T* from, Index from_row, T scale, Write<T> to) const {
    for (Index h = 0; h < s_.heads; ++h)
      write_scaled(width, scale, from + h * from_row, Write<T>{to.to + h * width, to.add});
  }

  const KeysOfQueries& keys_;
  const SparseSizes& s_;
  Index columns_, row_, value_row_, size_ = 0;
  Index gathered_, weights_, dweights_, query_t_, dy_t_, query_, dy_, sum_;
};

}  // namespace

template <class T>
void sparse_attention_forward(Cpu, const KeysOfQueries& keys, const SparseSizes& sizes, const T* query,
                              const T* latents, T* y, Wide<T>* shares) {
  const SparseQuery<T> one(keys, sizes);
  const double work = static_cast<double>(keys.rows() * keys.top_k * sizes.heads * sizes.width);
  for_units<SparseSizes, T>(keys.rows(), work, one.memory(), [&](Index row, T* memory) {
    one.forward(row, query, latents, y, shares, memory);
  });
}

template <class T>
void sparse_attention_backward(Cpu, const KeysOfQueries& keys, const SparseSizes& sizes, const T* query,
                               const T* latents, const T* dy, Write<T> dquery, Write<T> dlatents) {
  const SparseQuery<T> one(keys, sizes);
  add_to_chosen<SparseSizes, T>(keys, sizes.heads * sizes.width, one.memory(), one.row(), sizes.width,
                                dlatents, [&](Index row, T* dgathered, T* memory) {
                                  one.backward(row, query, latents, dy, dquery, dgathered, memory);
                                });
}

void write_pairs_of_keys(Cpu, const KeysOfQueries& keys, bool* pairs) {
  parallel_ranges(keys.rows(), keys.keys, [&](Index from, Index to) {
    std::fill(pairs + from * keys.keys, pairs + to * keys.keys, false);
    for (Index row = from; row < to; ++row)
      for (Index j = 0; j < keys.count(row); ++j)
        pairs[row * keys.keys + keys.of(row)[j] - row / keys.queries * keys.keys] = true;
  });
}

TAPEFORMER_CPU_KERNEL(sparse_attention_forward);
TAPEFORMER_CPU_KERNEL(sparse_attention_backward);

}  // namespace tapeformer::kernels
