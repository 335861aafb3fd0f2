#include <tapeformer/autograd/kernels/block_attention.h>
#include <tapeformer/autograd/kernels/cpu/attention_tile.h>
#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/simd.h>

#include <algorithm>
#include <numeric>

namespace tapeformer::kernels {
namespace {

/// A unit's attention: its parts from `first` on, and its keys from `key` on.
struct UnitAttention {
  AttentionShape shape;
  Index first = 0, key = 0;
};

/// Calls each(unit attention) for every unit, on any free thread. If there are several units, the attention
/// of each takes one thread, so that no result depends on the number of threads.
template <class T, class F>
void for_block_units(const BlockSizes& s, const AttentionShape& shape, const std::int32_t* starts,
                     const F& each) {
  constexpr double kWorthThreads = kParallelWork;  // however small: alone, a unit would be cut into pieces
  for_units<BlockSizes, std::int32_t>(
      s.units(), kWorthThreads, 2 * shape.queries, [&](Index unit, std::int32_t* ranges) {
        UnitAttention of{shape, starts[unit], unit / s.blocks() * s.keys + unit % s.blocks() * s.block};
        const Index count = starts[unit + 1] - of.first, key = of.key;
        for (Index i = 0; i < count; ++i) {
          ranges[i] = static_cast<std::int32_t>(shape.key_from[of.first + i] - key);
          ranges[count + i] = static_cast<std::int32_t>(shape.key_to[of.first + i] - key);
        }
        of.shape.queries = count;
        of.shape.keys = std::min(s.block, s.keys - unit % s.blocks() * s.block);
        of.shape.key_from = ranges, of.shape.key_to = ranges + count;
        if (shape.key_mask != nullptr) of.shape.key_mask = shape.key_mask + key;
        each(of);
      });
}

template <class T>
AttentionOperands<T> operands_of(const UnitAttention& unit, const AttentionOperands<T>& x) {
  return {x.query + unit.first * unit.shape.key_width, x.key + unit.key * unit.shape.key_width,
          x.value + unit.key * unit.shape.value_width};
}
template <class T>
Write<T> rows_from(Write<T> to, Index row, Index width) {
  return {to ? to.to + row * width : nullptr, to.add};
}

}  // namespace

template <class T>
void choose_blocks(Cpu, const BlockSizes& s, const T* query, const Wide<T>* means, Wide<T>* scores,
                   std::int32_t* units) {
  parallel_ranges(s.rows(), s.whole_blocks() * s.key_width / 8 + 1, [&](Index from, Index to) {
    for (Index row = from; row < to; ++row) {
      const Index mean = s.key_row(row) * s.whole_blocks();
      if (means != nullptr)
        for_other_blocks(s, row, own_block(s, row), [&](Index block) {
          scores[row * s.whole_blocks() + block] =
              dot_simd(s.key_width, query + row * s.key_width, means + (mean + block) * s.key_width);
        });
      choose_for_row(s, row, scores, units);
    }
  });
}

void sort_by_block(Cpu, const BlockSizes& s, const std::int32_t* units, const SortedParts& parts) {
  struct NextParts {};
  std::int32_t* const next = thread_memory<NextParts, std::int32_t>(s.units() + 2);
  std::fill_n(next, s.units() + 2, 0);
  for (Index i = 0; i < s.parts(); ++i) ++next[units[i] + 1];
  std::partial_sum(next, next + s.units() + 2, next);
  std::copy_n(next, s.units() + 1, parts.starts);
  for (Index i = 0; i < s.parts(); ++i) {
    const std::int32_t part = next[units[i]]++;
    const Index row = i / s.top_k;
    const KeyRange range = range_in_unit(s, row, units[i]);
    parts.places[i] = part;
    parts.rows[part] = static_cast<std::int32_t>(row);
    parts.from[part] = static_cast<std::int32_t>(range.from);
    parts.to[part] = static_cast<std::int32_t>(range.to);
  }
}

void write_chosen_pairs(Cpu, const BlockSizes& s, const std::int32_t* units, bool* pairs) {
  parallel_ranges(s.rows() * s.keys, s.top_k, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) pairs[i] = is_chosen_pair(s, units, i);
  });
}

template <class T>
void block_attention_forward(Cpu on, const BlockSizes& s, const AttentionShape& shape,
                             const std::int32_t* starts, const AttentionOperands<T>& x, T* y,
                             Wide<T>* log_sum) {
  for_block_units<T>(s, shape, starts, [&](const UnitAttention& unit) {
    attention_forward(on, unit.shape, operands_of(unit, x), y + unit.first * shape.value_width,
                      log_sum + unit.first);
  });
  const Index seen = starts[s.units()];
  std::fill(y + seen * shape.value_width, y + s.parts() * shape.value_width, T(0));
  std::fill(log_sum + seen, log_sum + s.parts(), kMinusInfinity<T>);
}

template <class T>
void block_attention_backward(Cpu on, const BlockSizes& s, const AttentionShape& shape,
                              const std::int32_t* starts, const AttentionOperands<T>& x, const T* y,
                              const Wide<T>* log_sum, const T* dy, const AttentionGradients<T>& to) {
  for_block_units<T>(s, shape, starts, [&](const UnitAttention& unit) {
    const Index row = unit.first, D = shape.key_width, E = shape.value_width;
    attention_backward(
        on, unit.shape, operands_of(unit, x), y + row * E, log_sum + row, dy + row * E,
        {rows_from(to.dquery, row, D), rows_from(to.dkey, unit.key, D), rows_from(to.dvalue, unit.key, E)});
  });
  const Index seen = starts[s.units()], D = shape.key_width;
  if (to.dquery) std::fill(to.dquery.to + seen * D, to.dquery.to + s.parts() * D, T(0));
}

template <class T>
void add_block_parts(Cpu, const BlockSizes& s, Index width, const std::int32_t* places, const T* parts,
                     const Wide<T>* part_log_sums, Write<T> y, Wide<T>* log_sum) {
  parallel_ranges(s.rows(), s.top_k * width / 8 + 1, [&](Index from, Index to) {
    for (Index row = from; row < to; ++row) {
      const std::int32_t* const of_row = places + row * s.top_k;
      PartSum<T> sum{};
      if (part_log_sums != nullptr) {
        sum = sum_of_parts(s.top_k, of_row, part_log_sums);
        log_sum[row] = sum.largest + std::log(sum.total);
      }
      for (Index i = 0; i < s.top_k; ++i) {
        const T weight = part_log_sums != nullptr ? weight_of_part(sum, part_log_sums[of_row[i]]) : T(1);
        write_scaled(width, weight, parts + of_row[i] * width, Write<T>{y.to + row * width, y.add || i > 0});
      }
    }
  });
}

TAPEFORMER_CPU_KERNEL(choose_blocks);
TAPEFORMER_CPU_KERNEL(block_attention_forward);
TAPEFORMER_CPU_KERNEL(block_attention_backward);
TAPEFORMER_CPU_KERNEL(add_block_parts);

}  // namespace tapeformer::kernels
