#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace tapeformer::cuda {

/// Memory of a device's graphs: segments, which stay until drop_free(), divided into blocks by the host. A
/// freed block may be reused at once, since all its users are captured, and run, in one order. Thread-safe.
class Arena {
 public:
  /// Makes a segment of this size; may throw.
  using MakeSegment = std::function<void*(std::size_t bytes)>;
  using DropSegment = std::function<void(void* segment, std::size_t bytes)>;

  /// Takes the smallest free block that is large enough, or a new segment.
  void* allocate(std::size_t bytes, const MakeSegment& make);
  /// Frees a block; false if it is not the arena's.
  bool release(void* block);
  /// Adds a segment now for what the free blocks lack of this size.
  void reserve(std::size_t bytes, const MakeSegment& make);
  /// Gives back segments without a block in use.
  void drop_free(const DropSegment& drop);

  /// Marks blocks in use as kept: they outlive the capture that made them, and no graph owns them anymore.
  void keep_used();
  /// True for an address within a block that is not kept.
  bool contains(const void* from) const;
  /// The bytes of blocks in use that are not kept.
  std::int64_t fresh_bytes() const;

 private:
  struct Block {
    std::size_t bytes = 0;
    bool is_free = true, is_kept = false;
  };
  using Blocks = std::map<char*, Block>;

  void add_segment(std::size_t bytes, const MakeSegment& make);
  void make_free(Blocks::iterator block);
  void take_from_free(Blocks::iterator block) { free_.erase({block->second.bytes, block->first}); }
  bool begins_segment(const char* block) const { return segments_.count(const_cast<char*>(block)) > 0; }

  mutable std::mutex mutex_;
  std::map<char*, std::size_t> segments_;
  Blocks blocks_;                                 // all of every segment
  std::set<std::pair<std::size_t, char*>> free_;  // by size
  std::size_t used_ = 0, fresh_ = 0, held_ = 0;
};

}  // namespace tapeformer::cuda
