#pragma once

#include <cuda_emulator.h>

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tapeformer::emulator {

enum class Access : unsigned { read, write, atomic };

/// True while the code of a kernel runs, whose accesses matter; false within the emulator and on the host.
inline thread_local bool watching = false;

/// For each thread of a block, the time in an interval before which its accesses are known to be done.
struct Known {
  std::uint32_t interval = 0;  ///< in others: nothing
  std::vector<std::uint16_t> before;

  void add(const Known& other);
  void keep_common(const Known& other);
};

/// The last known accesses to each four bytes of memory. Barriers divide time into intervals,
/// numbered over all launches, so that old records need no clearing: the interval of a record says whether it
/// belongs to this launch, to this block, and to the time since its last barrier.
class Shadow {
 public:
  void begin_launch();
  void begin_block(const uint3& block, unsigned threads);
  /// A barrier that all threads of the block passed.
  void begin_interval();
  /// A __syncwarp of the lanes in `mask`: all see after it what each did before it.
  void join_lanes(unsigned warp, unsigned mask);
  /// Others may learn what `thread` has done and knows so far, but not what it does after this.
  const Known& release(unsigned thread);
  void acquire(unsigned thread, const Known& known);
  /// A proxy fence: copies and products that know of it may follow all that `thread` has done before.
  void publish(unsigned thread);

  /// Records an access and returns its fault; empty: none. `shared`: the block's own memory.
  std::string touch(unsigned thread, const void* address, std::size_t bytes, Access kind, bool shared);
  /// An asynchronous operation, begun by a thread that knows `known`, reads or writes 16 bytes of shared
  /// memory. Returns the thread's access there that it may not follow; empty: none.
  std::string touch_beside(const void* address, bool writes, const Known& known);

 private:
  static constexpr unsigned kThreads = 1024, kLanes = 32, kPageBytes = 4096;
  static constexpr std::size_t kMostPages = 8192;

  /// One access in 64 bits: one load, one comparison.
  struct Record {
    std::uint64_t bits;
    std::uint32_t interval() const { return static_cast<std::uint32_t>(bits >> 32); }
    /// The number of times that the thread had published its progress in the interval.
    unsigned time() const { return bits >> 16 & 0xffff; }
    unsigned thread() const { return bits >> 6 & 0x3ff; }
    Access kind() const { return static_cast<Access>(bits >> 4 & 3); }
    /// Bit i: byte i of the four.
    unsigned bytes() const { return bits & 15; }
  };
  struct Cell {
    std::array<Record, 4> records;
    std::uint32_t written_in;     // the first interval of the block that has written it
    std::uint32_t written_bytes;  // bits again
  };
  using Page = std::array<Cell, kPageBytes / 4>;

  Cell& cell(std::uintptr_t address);
  Known& known(unsigned thread);
  std::uint16_t time_of(unsigned thread) const;
  bool is_published(const Record& record, const Known& known) const;
  bool before(const Record& old, const Record& now) const;
  bool touch_cell(Cell& cell, const Record& now, bool shared, Record& other) const;
  /// "thread 5 of block (0,0,0) reads", by the verbs of the kinds of access
  std::string describe(const Record& record, const std::array<const char*, 3>& verbs) const;

  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::array<std::pair<std::uintptr_t, Page*>, 256> recent_{};
  std::array<Known, kThreads> known_{};
  std::array<std::vector<std::uint64_t>, kThreads> published_;  // interval and time of the fences of each
  unsigned threads_ = 0;
  bool is_wide_ = false;  // whether threads know of others than those of their warp
  std::uint32_t interval_ = 1;
  std::uint32_t block_begin_ = 1;
  std::uint32_t launch_begin_ = 1;
  std::vector<std::pair<std::uint32_t, uint3>> blocks_;  // of the launch, by first interval
};

}  // namespace tapeformer::emulator
