#pragma once

#include <cuda_emulator.h>
#include <tapeformer/tests/emulator/fibre.h>
#include <tapeformer/tests/emulator/hopper.h>
#include <tapeformer/tests/emulator/shadow.h>

#include <array>
#include <exception>
#include <random>
#include <string>
#include <vector>

namespace tapeformer::emulator {

constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kWarp = 32;
// After the shared memory: if it has changed, a thread wrote past the end.
constexpr std::size_t kFenceBytes = 256;

/// Runs launches on one host thread: one block at a time, whose threads take turns whenever one has to wait.
class Machine {
 public:
  Machine();
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void launch(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes, void (*body)(void*),
              void* arguments);
  std::uint64_t meet(const Call& call);
  /// Waits until the threads that wait for `key` are woken.
  void park(const void* key, const Call& call);
  void wake(const void* key);
  unsigned running_thread() const { return current_->number; }
  unsigned block_threads() const { return size_; }
  std::size_t shared_bytes() const { return shared_bytes_; }
  HopperBlock& hopper() { return hopper_; }
  char* shared_memory() { return shared_; }
  /// The last accesses to memory, in race mode.
  Shadow* shadow() { return watched_ ? &shadow_ : nullptr; }
  void touch(const char* address, std::size_t bytes, Access kind, const void* code);
  [[noreturn]] void fail(const std::string& what) const;
  std::string where_threads_are() const;

 private:
  enum class State { fresh, ready, waiting, returned };
  struct Thread {
    uint3 index;
    unsigned number;
    State state;
    Fibre* fibre;  ///< once it has begun
    Call call;     ///< the last one; it waits there if it is waiting
    std::uint64_t result;
    const void* key;  ///< what it waits for, if it is parked
  };
  struct Abandoned {};  ///< thrown in threads that will not be continued, so that they unwind

  static void enter_worker();
  [[noreturn]] void work();
  void run_block();
  void resume(Thread* next, Fibre& from);
  Thread* take();
  void release(Thread& thread);
  void abandon();

  void arrive_at_barrier(Thread& self);
  void arrive_in_warp(Thread& self);
  void exchange(Thread* lanes, unsigned mask);
  void find_thread_locals();

  FibreArena arena_;
  Fibre host_;
  std::vector<Fibre*> idle_;
  std::vector<Thread> threads_;
  std::vector<Thread*> ready_;  ///< from position next_ on
  std::size_t next_ = 0;
  Thread* current_ = nullptr;
  unsigned size_ = 0;            ///< threads in a block
  unsigned at_barrier_ = 0;      ///< how many wait there
  unsigned predicates_ = 0;      ///< how many of them passed true
  const Call* first_ = nullptr;  ///< of those at the barrier
  unsigned returned_ = 0;
  std::array<unsigned, kMaxThreads / kWarp> waiting_lanes_{};
  /// The values that the lanes of each warp exchanged last.
  alignas(64) std::array<std::array<char, kWarp * kSharedStride>, kMaxThreads / kWarp> in_common_{};
  std::exception_ptr error_;
  bool abandoning_ = false;
  std::mt19937_64 random_;

  const char* name_ = "";
  void (*body_)(void*) = nullptr;
  void* arguments_ = nullptr;
  std::size_t shared_bytes_ = 0;
  char* shared_ = nullptr;

  Shadow shadow_;
  bool watched_ = false;  ///< whether accesses are looked at, in this launch
  std::string race_;      ///< the fault that was found
  HopperBlock hopper_{*this};
  Call last_barrier_{};  ///< all threads of the block passed; without a file: none yet
  std::vector<std::pair<const char*, std::size_t>> thread_locals_;
};

/// Throws: std::logic_error outside of launches
Machine& running_machine();

/// threadIdx, blockIdx, blockDim and gridDim, for code that may change them.
extern __thread uint3 thread_index __asm__("threadIdx"), block_index __asm__("blockIdx");
extern __thread dim3 block_size __asm__("blockDim"), grid_size __asm__("gridDim");

/// One of two numbers in bf16.
inline float half_of(unsigned pair, unsigned which) {
  return bit_cast<float>(which == 0 ? pair << 16 : pair & 0xFFFF0000u);
}
/// Drops the asynchronous copies that threads of a block left unfinished.
void forget_copies();
/// Whether any code was compiled to report its accesses.
inline bool instrumented = false;
/// Such code touches memory.
void touched(const void* address, std::size_t bytes, Access kind, const void* code);

}  // namespace tapeformer::emulator
