#include <tapeformer/autograd/kernels/cuda/device.h>
#include <tapeformer/autograd/kernels/visibility.h>

namespace tapeformer::kernels {
namespace {

/// The packed sequence of a row: the last that starts at it or before, and is not empty.
__device__ Index sequence_of(const Visibility& v, Index row) {
  if (v.query_starts == nullptr) return row / v.queries;
  Index low = 0, high = v.sequences;  // starts[low] <= row < starts[high]
  while (high - low > 1) {
    const Index middle = (low + high) / 2;
    (v.query_starts[middle] <= row ? low : high) = middle;
  }
  return low;
}

__global__ void find_visible_keys_kernel(Visibility v, std::int32_t* from, std::int32_t* to) {
  for_each_index(v.batch * v.queries, [&](Index row) {
    const Index i = sequence_of(v, row);
    const Sequence sequence = sequence_at(v, i);
    KeyRange range = range_at(v, sequence, i, row - sequence.row);
    if (v.key_mask != nullptr) {
      const bool* real = v.key_mask + row / v.queries * v.keys;
      while (range.from < range.to && !real[range.from]) ++range.from;
      while (range.from < range.to && !real[range.to - 1]) --range.to;
    }
    if (v.query_mask != nullptr && !v.query_mask[row]) range.to = range.from;
    from[row] = static_cast<std::int32_t>(range.from);
    to[row] = static_cast<std::int32_t>(range.to);
  });
}

/// Wrong starts are reported later: until then no key that a query sees may lie beyond its relative biases.
__global__ void find_positions_kernel(Visibility v, std::int32_t* positions) {
  const Index longest = max(v.queries, v.keys);
  for_each_index(v.batch * v.queries, [&](Index row) {
    const Index i = sequence_of(v, row);
    const Sequence sequence = sequence_at(v, i);
    const Index least = keys_at(v, sequence, i) - longest,
                position = position_at(v, sequence, i, row - sequence.row);
    positions[row] = static_cast<std::int32_t>(sequence.key + max(least, min(position, longest - 1)));
  });
}

__global__ void write_relative_entries_kernel(Index count, Index keys, Index reach,
                                              const std::int32_t* positions, std::int32_t* entries) {
  for_each_index(count, [&](Index i) { entries[i] = relative_entry(i % keys, positions[i / keys], reach); });
}

__global__ void write_visible_pairs_kernel(Index count, Index keys, const std::int32_t* from,
                                           const std::int32_t* to, bool* pairs) {
  for_each_index(count, [&](Index i) {
    const Index row = i / keys, key = i % keys;
    pairs[i] = from[row] <= key && key < to[row];
  });
}

__global__ void find_seeing_queries_kernel(PairMask m, bool* queries) {
  for_each_index(m.batch * m.queries * m.heads, [&](Index i) {
    const Index b = i / m.heads / m.queries, t = i / m.heads % m.queries;
    Index s = 0;
    while (s < m.keys && !m.at(b, i % m.heads, t, s)) ++s;
    queries[i] = s < m.keys;
  });
}

__global__ void find_seen_keys_kernel(PairMask m, bool* keys) {
  const Index heads = m.heads / m.groups;  // of a group
  for_each_index(m.batch * m.keys * m.groups, [&](Index i) {
    const Index b = i / m.groups / m.keys, s = i / m.groups % m.keys, first = i % m.groups * heads;
    Index row = 0;
    while (row < heads * m.queries && !m.at(b, first + row / m.queries, row % m.queries, s)) ++row;
    keys[i] = row < heads * m.queries;
  });
}

}  // namespace

void find_visible_keys(Cuda on, const Visibility& visibility, std::int32_t* from, std::int32_t* to) {
  launch(on, "find_visible_keys", find_visible_keys_kernel, blocks_for(visibility.batch * visibility.queries),
         visibility, from, to);
}

void find_positions(Cuda on, const Visibility& visibility, std::int32_t* positions) {
  launch(on, "find_positions", find_positions_kernel, blocks_for(visibility.batch * visibility.queries),
         visibility, positions);
}

void write_relative_entries(Cuda on, Index rows, Index keys, Index reach, const std::int32_t* positions,
                            std::int32_t* entries) {
  launch(on, "write_relative_entries", write_relative_entries_kernel, blocks_for(rows * keys), rows * keys,
         keys, reach, positions, entries);
}

void write_visible_pairs(Cuda on, Index rows, Index keys, const std::int32_t* from, const std::int32_t* to,
                         bool* pairs) {
  launch(on, "write_visible_pairs", write_visible_pairs_kernel, blocks_for(rows * keys), rows * keys, keys,
         from, to, pairs);
}

void find_seen_rows(Cuda on, const PairMask& mask, bool* queries, bool* keys) {
  launch(on, "find_seeing_queries", find_seeing_queries_kernel,
         blocks_for(mask.batch * mask.queries * mask.heads), mask, queries);
  launch(on, "find_seen_keys", find_seen_keys_kernel, blocks_for(mask.batch * mask.keys * mask.groups), mask,
         keys);
}

}  // namespace tapeformer::kernels
