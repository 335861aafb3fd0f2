#pragma once

#include <tapeformer/autograd/kernels/cpu/attention_tile.h>
#include <tapeformer/autograd/kernels/sparse_attention.h>

#include <algorithm>

namespace tapeformer::kernels {

// Keys that a query has chosen, copied side by side, and the way back of their gradients.

/// to [count, to_row]: the rows [width] of a query's keys, with zeros up to whole vectors.
template <class T>
void gather(const KeysOfQueries& keys, Index row, Index count, Index width, const T* from, T* to,
            Index to_row) {
  const std::int32_t* const own = keys.of(row);
  for (Index j = 0; j < count; ++j)
    pack_rows<T>(1, width, from + own[j] * width, width, nullptr, T(1), to + j * to_row, to_row);
}

/// For every query, calls part(row, dgathered, memory), which writes the gradients [K, part_row] of its keys,
/// and adds these to dkeys [B S, width], in the order of the queries, however many threads there are.
/// dgathered is nullptr where dkeys is not needed; `memory` is `size` values of the thread's own.
template <class Purpose, class T, class Part>
void add_to_chosen(const KeysOfQueries& keys, Index work, Index size, Index part_row, Index width,
                   Write<T> dkeys, const Part& part) {
  struct Parts {};
  struct Memory {};
  if (dkeys && !dkeys.add)
    parallel_ranges(keys.all_keys(), width, [&](Index from, Index to) {
      std::fill(dkeys.to + from * width, dkeys.to + to * width, T(0));
    });
  const Index threads = omp_in_parallel() ? 1 : omp_get_max_threads(),
              together = std::min(keys.rows(), threads > 1 ? 4 * threads : 1), of_one = keys.top_k * part_row;
  T* const parts = dkeys ? thread_memory<std::pair<Purpose, Parts>, T>(together * of_one) : nullptr;
  for (Index first = 0; first < keys.rows(); first += together) {
    const Index count = std::min(together, keys.rows() - first);
    parallel_ranges(count, work * keys.top_k, [&](Index from, Index to) {
      T* const memory = thread_memory<std::pair<Purpose, Memory>, T>(size);
      for (Index i = from; i < to; ++i) part(first + i, dkeys ? parts + i * of_one : nullptr, memory);
    });
    if (!dkeys) continue;
    constexpr Index kColumns = 4 * kLanes<T>;
    parallel_ranges(blocks_of(width, kColumns), count * keys.top_k * kColumns / 8, [&](Index from, Index to) {
      const Index column = from * kColumns, columns = std::min(width, to * kColumns) - column;
      for (Index i = 0; i < count; ++i)
        for (Index j = 0; j < keys.count(first + i); ++j)
          write_scaled(columns, T(1), parts + i * of_one + j * part_row + column,
                       Write<T>{dkeys.to + keys.of(first + i)[j] * width + column, true});
    });
  }
}

}  // namespace tapeformer::kernels
