#include <tapeformer/autograd/kernels/block_attention.h>
#include <tapeformer/autograd/kernels/cuda/device.h>
#include <tapeformer/autograd/kernels/cuda/sort.h>
#include <tapeformer/autograd/kernels/cuda/tile_product.h>

namespace tapeformer::kernels {
namespace {

/// A tile of the scores of the queries that read one row of keys.
template <class T>
__global__ void block_scores_kernel(BlockSizes s, const T* query, const Wide<T>* means, Wide<T>* scores) {
  using W = Wide<T>;
  const Index shared = s.heads / s.groups, across = tiles_of(s.queries * shared, kProductTile),
              down = tiles_of(s.whole_blocks(), kProductTile);
  const Index first = blockIdx.x % across * kProductTile, block = blockIdx.x / across % down * kProductTile,
              key_row = blockIdx.x / across / down;
  const auto row_of = [&](Index i) {
    return (key_row / s.groups * s.queries + i / shared) * s.heads + key_row % s.groups * shared + i % shared;
  };
  const auto is_row = [&](int i) { return first + i < s.queries * shared; };
  const auto is_block = [&](int j) { return block + j < s.whole_blocks(); };
  const W sum = tile_product<W>(
      0, s.key_width,
      [&](int i, Index d) {
        return is_row(i) ? static_cast<W>(query[row_of(first + i) * s.key_width + d]) : W(0);
      },
      [&](Index d, int j) {
        return is_block(j) ? means[(key_row * s.whole_blocks() + block + j) * s.key_width + d] : W(0);
      });
  if (is_row(row_in_tile()) && is_block(column_in_tile()))
    scores[row_of(first + row_in_tile()) * s.whole_blocks() + block + column_in_tile()] = sum;
}

template <class W>
__global__ void choose_blocks_kernel(BlockSizes s, const W* scores, std::int32_t* units) {
  for_each_index(s.rows(), [&](Index row) { choose_for_row(s, row, scores, units); });
}

/// Fills `parts` from the choices in the order of their units: `keys` are these units, `choices` the numbers
/// of the choices.
__global__ void place_parts_kernel(BlockSizes s, const std::int32_t* keys, const std::int32_t* choices,
                                   SortedParts parts) {
  for_each_index(s.parts() + 1, [&](Index part) {
    const bool is_end = part == s.parts();
    const Index before = part == 0 ? -1 : keys[part - 1], own = is_end ? s.units() : keys[part];
    for (Index unit = before + 1; unit <= own; ++unit) parts.starts[unit] = static_cast<std::int32_t>(part);
    if (is_end) return;
    const Index row = choices[part] / s.top_k;
    const KeyRange range = range_in_unit(s, row, own);
    parts.places[choices[part]] = static_cast<std::int32_t>(part);
    parts.rows[part] = static_cast<std::int32_t>(row);
    parts.from[part] = static_cast<std::int32_t>(range.from);
    parts.to[part] = static_cast<std::int32_t>(range.to);
  });
}

__global__ void chosen_pairs_kernel(BlockSizes s, const std::int32_t* units, bool* pairs) {
  for_each_index(s.rows() * s.keys, [&](Index i) { pairs[i] = is_chosen_pair(s, units, i); });
}

template <class T>
__global__ void add_block_parts_kernel(BlockSizes s, Index width, const std::int32_t* places, const T* parts,
                                       const Wide<T>* part_log_sums, Write<T> y) {
  using W = Wide<T>;
  for_each_index(s.rows() * width, [&](Index i) {
    const std::int32_t* const of_row = places + i / width * s.top_k;
    PartSum<W> all{};
    if (part_log_sums != nullptr) all = sum_of_parts(s.top_k, of_row, part_log_sums);
    W sum = W(0);
    for (Index k = 0; k < s.top_k; ++k) {
      const W weight = part_log_sums != nullptr ? weight_of_part(all, part_log_sums[of_row[k]]) : W(1);
      sum += weight * static_cast<W>(parts[of_row[k] * width + i % width]);
    }
    y.put(i, sum);
  });
}

template <class W>
__global__ void add_part_sums_kernel(BlockSizes s, const std::int32_t* places, const W* part_log_sums,
                                     W* log_sum) {
  for_each_index(s.rows(), [&](Index row) {
    const PartSum<W> sum = sum_of_parts(s.top_k, places + row * s.top_k, part_log_sums);
    log_sum[row] = sum.largest + std::log(sum.total);
  });
}

}  // namespace

template <class T>
void choose_blocks(Cuda on, const BlockSizes& s, const T* query, const Wide<T>* means, Wide<T>* scores,
                   std::int32_t* units) {
  if (means != nullptr && s.whole_blocks() > 0)
    launch(on, "block_scores", block_scores_kernel<T>,
           tiles_of(s.queries * s.heads / s.groups, kProductTile) * tiles_of(s.whole_blocks(), kProductTile) *
               s.batch * s.groups,
           s, query, means, scores);
  launch(on, "choose_blocks", choose_blocks_kernel<Wide<T>>, blocks_for(s.rows()), s, scores, units);
}

void sort_by_block(Cuda on, const BlockSizes& s, const std::int32_t* units, const SortedParts& parts) {
  const SortedKeys sorted(on, s.parts(), s.units(), units);
  launch(on, "place_parts", place_parts_kernel, blocks_for(s.parts() + 1), s, sorted.keys(),
         sorted.positions(), parts);
}

void write_chosen_pairs(Cuda on, const BlockSizes& s, const std::int32_t* units, bool* pairs) {
  launch(on, "chosen_pairs", chosen_pairs_kernel, blocks_for(s.rows() * s.keys), s, units, pairs);
}

template <class T>
void block_attention_forward(Cuda on, const BlockSizes& /*sizes*/, const AttentionShape& shape,
                             const std::int32_t* /*starts*/, const AttentionOperands<T>& x, T* y,
                             Wide<T>* log_sum) {
  attention_forward(on, shape, x, y, log_sum);
}

template <class T>
void block_attention_backward(Cuda on, const BlockSizes& /*sizes*/, const AttentionShape& shape,
                              const std::int32_t* /*starts*/, const AttentionOperands<T>& x, const T* y,
                              const Wide<T>* log_sum, const T* dy, const AttentionGradients<T>& to) {
  attention_backward(on, shape, x, y, log_sum, dy, to);
}

template <class T>
void add_block_parts(Cuda on, const BlockSizes& s, Index width, const std::int32_t* places, const T* parts,
                     const Wide<T>* part_log_sums, Write<T> y, Wide<T>* log_sum) {
  launch(on, "add_block_parts", add_block_parts_kernel<T>, blocks_for(s.rows() * width), s, width, places,
         parts, part_log_sums, y);
  if (part_log_sums != nullptr)
    launch(on, "add_part_sums", add_part_sums_kernel<Wide<T>>, blocks_for(s.rows()), s, places, part_log_sums,
           log_sum);
}

TAPEFORMER_CUDA_KERNEL(choose_blocks);
TAPEFORMER_CUDA_KERNEL(block_attention_forward);
TAPEFORMER_CUDA_KERNEL(block_attention_backward);
TAPEFORMER_CUDA_KERNEL(add_block_parts);

}  // namespace tapeformer::kernels
