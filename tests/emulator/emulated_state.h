#pragma once

#include <emulated_cuda.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

// The state of the emulated runtime: devices, streams and graphs.

struct EmulatedPool {
  std::size_t in_use = 0, held = 0;  // bytes, including graphs'
};
struct EmulatedGraph {
  std::vector<std::function<void()>> work;
  bool is_spoilt = false;
};
struct EmulatedGraphExec {
  std::shared_ptr<const EmulatedGraph> graph;  // launches that are queued share it
  EmulatedPool* pool;                          // of the device's memory
  std::size_t bytes;
};
struct EmulatedWork {
  std::function<void()> run;
  /// Makes everything happen that must come first. It runs other streams and may wait for other threads,
  /// which may run this one meanwhile; so it may be called more than once.
  std::function<void()> before;
};
/// Work in order: the first `done` pieces have run, `queued` have been asked for.
struct EmulatedStream {
  int device;
  std::deque<EmulatedWork> work;
  std::uint64_t done = 0, queued = 0;
  std::unique_ptr<EmulatedGraph> capture = nullptr;
};
/// Happens when the first `position` pieces of `stream` have run.
struct EmulatedEvent {
  EmulatedStream* stream = nullptr;
  std::uint64_t position = 0;
  std::shared_ptr<std::int64_t> microseconds = nullptr;  // when it did
};

namespace tapeformer::emulator {

enum class Kind { pooled, managed, pinned };
struct Block {
  std::size_t bytes;
  Kind kind;
  int device;
};

constexpr int kMostDevices = 16;

struct World {
  std::recursive_mutex mutex;
  std::condition_variable_any changed;  // some piece of work may be able to run now
  std::map<const char*, Block> blocks;
  EmulatedPool pools[kMostDevices];
  std::map<const void*, std::size_t> allowed[kMostDevices];  // dynamic shared memory of kernels
  std::vector<std::unique_ptr<EmulatedStream>> ended;        // events still know them
};
World& world();
using Lock = std::lock_guard<std::recursive_mutex>;

extern thread_local int current_device;

/// Remembers the error for cudaGetLastError().
cudaError_t failed(cudaError_t error);
void queue(EmulatedStream& stream, std::function<void()> work, std::function<void()> before = {});
void run_until(EmulatedStream& stream, std::uint64_t position);
/// For calls that are forbidden during a capture: true, and the capture invalid, if the stream is captured.
bool spoils_capture(cudaStream_t stream);
/// False if the device has less left.
bool take(EmulatedPool& pool, std::size_t bytes);

}  // namespace tapeformer::emulator
