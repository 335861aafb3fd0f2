#pragma once

#include <tapeformer/autograd/kernels/attention.h>
#include <tapeformer/autograd/kernels/cpu/block_product.h>
#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/philox_lanes.h>
#include <tapeformer/autograd/kernels/dropout.h>

#include <algorithm>
#include <numeric>

namespace tapeformer::kernels {

// Shared by both passes of tiled attention: visible keys, block by block, and memory for each thread.

// Short blocks of queries skip more of a causal mask's empty half, and cost nothing otherwise; 24 are whole
// strips of products.
constexpr Index kQueryBlock = 24, kKeyBlock = 128;

constexpr Index blocks_of(Index count, Index block) { return (count + block - 1) / block; }

/// The keys that query t may see at most.
inline KeyRange keys_of(const AttentionShape& s, Index b, Index t) {
  const Index row = b * s.queries + t;
  const KeyRange range{s.key_from == nullptr ? 0 : std::max<Index>(0, s.key_from[row]),
                       s.key_to == nullptr ? s.keys : std::min<Index>(s.keys, s.key_to[row])};
  return range.size() > 0 ? range : KeyRange{};
}

/// The keys from the first to the last that one of the queries [from, to) sees.
inline KeyRange keys_of(const AttentionShape& s, Index b, Index from, Index to) {
  if (s.key_from == nullptr && s.key_to == nullptr) return {0, s.keys};
  KeyRange all{s.keys, 0};
  for (Index t = from; t < to; ++t) {
    const KeyRange range = keys_of(s, b, t);
    if (range.size() > 0) all = {std::min(all.from, range.from), std::max(all.to, range.to)};
  }
  return all.size() > 0 ? all : KeyRange{};
}

/// Some queries of one head and the keys of one block that they see.
struct Tile {
  Index b, head, query, rows, key, columns;
};

/// Calls each(tile, skipped) for the blocks of the queries [from, to) of a head that see one of the keys
/// [key, key + count); a tile begins `skipped` keys after `key`, whole vectors.
template <class T, class F>
void for_tiles(const AttentionShape& s, Index b, Index head, Index from, Index to, Index key, Index count,
               const F& each) {
  for (Index t = from; t < to; t += kQueryBlock) {
    const Index end = std::min(to, t + kQueryBlock);
    const KeyRange range = keys_of(s, b, t, end);
    const Index low = std::max(range.from, key), high = std::min(range.to, key + count);
    if (low >= high) continue;
    const Index skipped = (low - key) / kLanes<T> * kLanes<T>;
    each(Tile{b, head, t, end - t, key + skipped, high - key - skipped}, skipped);
  }
}

/// values[i] = combine(values[i], mask[i * step])
template <class V, class M, class F>
void combine_row(Index count, V* values, const M* mask, Index step, const F& combine) {
  if (step == 1) {
#pragma omp simd
    for (Index i = 0; i < count; ++i) values[i] = combine(values[i], mask[i]);
  } else {
    for (Index i = 0; i < count; ++i) values[i] = combine(values[i], mask[i * step]);
  }
}

/// seen[i]: whether a query [from, to) of a head [first, last) sees key `key` + i. Keys that no query sees
/// may hold anything, so they must not be used.
template <class T>
void find_seen_keys(const AttentionShape& s, const T* bias, Index b, Index first, Index last, Index from,
                    Index to, Index key, Index count, std::uint8_t* seen) {
  std::fill(seen, seen + count, std::uint8_t{0});
  const bool has_masks = s.mask != nullptr || bias != nullptr;
  if (!has_masks) {  // rows see ranges, which mostly lie within the next one's
    KeyRange marked;
    for (Index t = to - 1; t >= from; --t) {
      const KeyRange range = keys_of(s, b, t);
      const Index low = std::max(range.from, key), high = std::min(range.to, key + count);
      if (low >= high || (low >= marked.from && high <= marked.to)) continue;
      std::fill(seen + low - key, seen + high - key, std::uint8_t{1});
      marked = {low, high};
    }
  }
  const bool all_heads_alike =
      (s.mask == nullptr || s.mask_strides[1] == 0) && (bias == nullptr || s.bias_strides[1] == 0);
  for (Index h = first; has_masks && h < (all_heads_alike ? first + 1 : last); ++h) {
    for (Index t = from; t < to; ++t) {
      const KeyRange range = keys_of(s, b, t);
      const Index low = std::max(range.from, key), size = std::min(range.to, key + count) - low;
      if (size <= 0) continue;
      std::uint8_t row[kKeyBlock];
      std::fill(row, row + size, std::uint8_t{1});
      const auto keep = [&](const auto* mask, const Index* strides, const auto& may_see) {
        if (mask == nullptr) return;
        combine_row(size, row, mask + b * strides[0] + h * strides[1] + t * strides[2] + low * strides[3],
                    strides[3], [&](std::uint8_t so_far, auto value) -> std::uint8_t {
                      return so_far & std::uint8_t{may_see(value)};
                    });
      };
      keep(s.mask, s.mask_strides, [](bool may) { return may; });
      keep(bias, s.bias_strides, [](T value) { return value != kMinusInfinity<T>; });
      combine_row(size, seen + low - key, row, 1,
                  [](std::uint8_t so_far, std::uint8_t now) -> std::uint8_t { return so_far | now; });
      const bool check_now = t % 16 == 0 || size == count;
      if (check_now && std::memchr(seen, 0, static_cast<std::size_t>(count)) == nullptr) h = last, t = to;
    }
  }
  if (s.key_mask == nullptr) return;
  combine_row(count, seen, s.key_mask + b * s.keys + key, 1,
              [](std::uint8_t so_far, bool may) -> std::uint8_t { return so_far & std::uint8_t{may}; });
}

/// Sets minus infinity outside [low, high). By whole vectors: to load one soon after a shorter store to it
/// waits for that store.
template <class T>
void mask_outside(Index low, Index high, Index width, T* line) {
  T lanes[kLanes<T>];
  for (Index k = 0; k < kLanes<T>; ++k) lanes[k] = static_cast<T>(k);
  const Lanes<T> first(static_cast<T>(low)), end(static_cast<T>(high)), nothing(kMinusInfinity<T>);
  const Index whole = high / kLanes<T> * kLanes<T>;
  for (Index i = low > 0 ? 0 : whole; i < width; i += kLanes<T>) {
    const Lanes<T> at = Lanes<T>::load_unaligned(lanes) + Lanes<T>(static_cast<T>(i));
    const Lanes<T> score = Lanes<T>::load_unaligned(line + i);
    xsimd::select((at >= first) & (at < end), score, nothing).store_unaligned(line + i);
  }
}

/// Adds the bias and sets minus infinity where a query does not see a key, up to the end of the last vector.
template <class T>
void mask_scores(const AttentionShape& s, const T* bias, const Tile& tile, T* scores, Index row) {
  const auto each = [&](const auto* values, const Index* strides, const auto& combine) {
    for (Index t = 0; t < tile.rows; ++t) {
      combine_row(tile.columns, scores + t * row,
                  values + tile.b * strides[0] + tile.head * strides[1] + (tile.query + t) * strides[2] +
                      tile.key * strides[3],
                  strides[3], combine);
    }
  };
  // Selected, not added: masked scores may be infinite or NaN.
  const auto choose = [](T score, bool may) { return may ? score : kMinusInfinity<T>; };
  if (bias != nullptr) {
    each(bias, s.bias_strides,
         [](T score, T value) { return value == kMinusInfinity<T> ? value : score + value; });
  }
  const Index of_keys[4] = {s.keys, 0, 0, 1};
  if (s.key_mask != nullptr) each(s.key_mask, of_keys, choose);
  if (s.mask != nullptr) each(s.mask, s.mask_strides, choose);
  const Index width = padded<T>(tile.columns);
  if (s.key_from == nullptr && s.key_to == nullptr && width == tile.columns) return;
  for (Index t = 0; t < tile.rows; ++t) {
    const KeyRange range = keys_of(s, tile.b, tile.query + t);
    const Index low = std::clamp<Index>(range.from - tile.key, 0, tile.columns),
                high = std::clamp<Index>(range.to - tile.key, 0, tile.columns);
    mask_outside(low, high, width, scores + t * row);
  }
}

/// The random words of dropout for successive rows of a tile. Neighbouring rows may share a group.
class DropoutWords {
 public:
  explicit DropoutWords(const AttentionShape& s) : s_(s) {}

  /// Words of the keys [tile.key, tile.key + tile.columns) of query tile.query + t.
  const std::uint32_t* row(const Tile& tile, Index t) {
    const Index first = ((tile.b * s_.heads + tile.head) * s_.queries + tile.query + t) * s_.keys + tile.key;
    const Index from = first / kDropoutGroup, to = (first + tile.columns - 1) / kDropoutGroup + 1;
    const Index known = std::max<Index>(0, std::min(to, to_) - from);
    if (from < from_ || from >= to_) {
      to_ = from;
    } else if (from > from_) {
      std::memmove(words_, words_ + (from - from_) * kDropoutGroup,
                   static_cast<std::size_t>(known * kDropoutGroup) * sizeof words_[0]);
      to_ = from + known;
    }
    from_ = from;
    for (; to_ < to; ++to_) {
      philox_lanes(s_.dropout, s_.dropout.first_block + static_cast<std::uint64_t>(to_ * kPhiloxBlocks),
                   words_ + (to_ - from) * kDropoutGroup);
    }
    return words_ + first % kDropoutGroup;
  }

 private:
  const AttentionShape& s_;
  Index from_ = 0, to_ = 0;  // groups in words_
  std::uint32_t words_[(kKeyBlock / kDropoutGroup + 2) * kDropoutGroup] = {};
};

/// Zero for elements that dropout drops.
template <class T>
void drop(Index count, const std::uint32_t* words, std::uint32_t dropped, T* values) {
#pragma omp simd
  for (Index i = 0; i < count; ++i) values[i] = words[i] >= dropped ? values[i] : T(0);
}

/// Offsets of several consecutive blocks in one piece of memory.
template <class T>
class Layout {
 public:
  Index take(Index count) {
    const Index at = size_;
    size_ += padded<T>(count);
    return at;
  }
  Index size() const { return size_; }

 private:
  Index size_ = 0;
};

/// The number of pieces to cut each of `units` of work into, to keep the threads evenly busy; `uneven` if the
/// pieces differ in cost.
inline Index pieces_of(Index units, bool uneven, Index most) {
  const Index threads = omp_in_parallel() ? 1 : omp_get_max_threads();
  if (units == 0 || units % threads == 0 || units >= 4 * threads) return 1;
  return std::clamp<Index>((uneven ? 2 : 1) * threads / std::gcd(units, threads), 1,
                           std::max<Index>(1, most));
}

/// Calls body(unit, memory) for every unit, on any free thread; `memory` is `size` values of the thread's
/// own. Every thread allocates before the work begins, so memory does not depend on the schedule.
template <class Purpose, class T, class Body>
void for_units(Index units, double work, Index size, const Body& body) {
  const Index threads = omp_in_parallel() ? 1 : std::min<Index>(omp_get_max_threads(), units);
  if (threads <= 1 || work < kParallelWork) {
    T* memory = thread_memory<Purpose, T>(size);
    for (Index unit = 0; unit < units; ++unit) body(unit, memory);
    return;
  }
  const Index together = std::max<Index>(1, units / (8 * threads));
  Team team;
#pragma omp parallel num_threads(static_cast <int>(threads))
  {
    team.spread();
    T* memory = nullptr;
    team.guard([&] { memory = thread_memory<Purpose, T>(size); });
#pragma omp for schedule(dynamic, together)
    for (Index unit = 0; unit < units; ++unit) {
      if (memory != nullptr) team.guard([&] { body(unit, memory); });
    }
  }
  team.rethrow();
}

}  // namespace tapeformer::kernels
