#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace tapeformer::cuda {

/// Memory of the graphs of a device: segments that stay, cut into blocks by the host. What is freed may be
/// handed out again at once, since all that uses it is captured, and runs, in one order. Thread-safe.
class Arena {
 public:
  /// A segment of so many bytes; may throw.
  using MakeSegment = std::function<void*(std::size_t bytes)>;
  using DropSegment = std::function<void(void* segment, std::size_t bytes)>;

  /// Out of the smallest free block that is large enough; from a new segment where there is none.
  void* allocate(std::size_t bytes, const MakeSegment& make);
  /// False when the block is none of it.
  bool release(void* block);
  /// A segment now, unless there are as many bytes free.
  void reserve(std::size_t bytes, const MakeSegment& make);
  /// Gives back the segments that nothing is used of.
  void drop_free(const DropSegment& drop);

  /// What is in use now outlives the capture that made it, and counts from here on as nobody's.
  void keep_used();
  /// False for what is kept.
  bool contains(const void* from) const;
  std::int64_t used_bytes() const;

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
  std::size_t used_ = 0, held_ = 0;
};

}  // namespace tapeformer::cuda
