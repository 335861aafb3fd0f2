#pragma once

#include <tapeformer/autograd/storage.h>

#include <cstdint>
#include <utility>

namespace tapeformer {

/// Which slot a tape gave to a parameter or a watched tensor, by its address. A tape's own, so that threads
/// that share a model write nothing into it. Open addressing: a few nanoseconds a look.
class LeafTable {
 public:
  /// -1 for what is not there.
  std::int32_t find(const void* leaf) const { return entries_.empty() ? -1 : entries_[position(leaf)].slot; }
  /// Adds it, or gives it another slot.
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

  /// Where it is, or belongs.
  std::size_t position(const void* leaf) const {
    const std::size_t mask = entries_.size() - 1;
    // The allocator's steps are in the low bits: Fibonacci hashing spreads them (Knuth, volume 3, section
    // 6.4).
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
