#pragma once

#include <tapeformer/autograd/storage.h>

#include <cstdint>
#include <utility>

namespace tapeformer {

/// The slot of a parameter or a watched tensor on a tape, by its address. Each tape has its own table, so
/// that threads can share a model without writing to it. Open addressing: a lookup takes a few nanoseconds.
class LeafTable {
 public:
  /// The slot of a leaf; -1 if there is none.
  std::int32_t find(const void* leaf) const { return entries_.empty() ? -1 : entries_[position(leaf)].slot; }
  /// Adds a leaf, or changes its slot.
  void put(const void* leaf, std::int32_t slot) {
    if (2 * (count_ + 1) > entries_.size()) grow();
    Entry& entry = entries_[position(leaf)];
    if (entry.leaf == nullptr) ++count_;
    entry = {leaf, slot};
  }
  void clear() {
    entries_.clear();
    count_ = 0;
  }

 private:
  struct Entry {
    const void* leaf = nullptr;
    std::int32_t slot = -1;
  };

  /// Its position, or the free one where it would go.
  std::size_t position(const void* leaf) const {
    const std::size_t mask = entries_.size() - 1;
    // The low bits are the allocator's steps; Fibonacci hashing spreads them (Knuth, volume 3, section 6.4).
    std::size_t at = static_cast<std::size_t>(
                         (reinterpret_cast<std::uintptr_t>(leaf) * std::uint64_t{0x9e3779b97f4a7c15}) >> 32) &
                     mask;
    while (entries_[at].leaf != nullptr && entries_[at].leaf != leaf) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    const PooledVector<Entry> before =
        std::exchange(entries_, PooledVector<Entry>(entries_.empty() ? 64 : 2 * entries_.size()));
    for (const Entry& entry : before) {
      if (entry.leaf != nullptr) entries_[position(entry.leaf)] = entry;
    }
  }

  PooledVector<Entry> entries_;  // a power of two of them, at most half in use
  std::size_t count_ = 0;
};

}  // namespace tapeformer
