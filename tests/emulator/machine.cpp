#include <sanitizer/asan_interface.h>
#include <tapeformer/tests/emulator/machine.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <sstream>

namespace tapeformer::emulator {
namespace {

constexpr int kFill = 0xff;  // a NaN in every format, and an index that leads nowhere

thread_local Machine* running = nullptr;

std::string describe(const dim3& size) {
  return "(" + std::to_string(size.x) + "," + std::to_string(size.y) + "," + std::to_string(size.z) + ")";
}

}  // namespace

Machine& running_machine() {
  if (running == nullptr) throw std::logic_error("[emulator] device functions need a launched kernel");
  return *running;
}

__thread uint3 thread_index{0, 0, 0}, block_index{0, 0, 0};
__thread dim3 block_size, grid_size;

Options& options() {
  static Options all = [] {
    Options from_environment;
    if (const char* order = std::getenv("TAPEFORMER_EMULATOR_ORDER"))
      from_environment.order = std::strtoull(order, nullptr, 10);
    return from_environment;
  }();
  return all;
}

void run(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes, void (*body)(void*),
         void* arguments) {
  if (running != nullptr)
    throw std::logic_error("[" + std::string(name) +
                           "] a kernel cannot launch another; launch from the host");
  static thread_local Machine machine;
  running = &machine;
  try {
    machine.launch(name, grid, block, shared_bytes, body, arguments);
  } catch (...) {
    running = nullptr;
    throw;
  }
  running = nullptr;
}

void touched(const void* address, std::size_t bytes, Access kind, const void* code) {
  running->touch(static_cast<const char*>(address), bytes, kind, code);
}

std::uint64_t meet(const Call& call) { return running_machine().meet(call); }
void* shared_memory() { return running_machine().shared_memory(); }

const char* share(const void* own, std::size_t bytes, const char* file, int line) {
  return reinterpret_cast<const char*>(
      meet({Operation::share, file, line, 0xffffffffu, reinterpret_cast<std::uint64_t>(own),
            static_cast<int>(bytes), warpSize}));
}

Machine::Machine() : arena_(kMaxThreads), threads_(kMaxThreads) {
  shared_ = new (std::align_val_t(128)) char[kMaxSharedBytes + kFenceBytes];
}

Machine::~Machine() { operator delete[](shared_, std::align_val_t(128)); }

void Machine::launch(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes, void (*body)(void*),
                     void* arguments) {
  const std::string op = "[" + std::string(name) + "] ";
  const std::uint64_t size = std::uint64_t{block.x} * block.y * block.z;
  if (size == 0 || size > kMaxThreads || block.z > 64)
    throw std::runtime_error(
        op + "a block has 1 to 1024 threads, at most 64 along z; got block=" + describe(block));
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 0xffffu ||
      grid.z > 0xffffu)
    throw std::runtime_error(
        op + "a grid has 1 to 2^31-1 blocks along x, 1 to 65535 along y and z; got grid=" + describe(grid));
  if (shared_bytes > kMaxSharedBytes)
    throw std::runtime_error(op + "a block has at most " + std::to_string(kMaxSharedBytes) +
                             " bytes of shared memory; got " + std::to_string(shared_bytes));
  name_ = name;
  body_ = body;
  arguments_ = arguments;
  shared_bytes_ = shared_bytes;
  size_ = static_cast<unsigned>(size);
  grid_size = grid;
  block_size = block;
  for (unsigned i = 0; i < size_; ++i) {
    threads_[i].number = i;
    threads_[i].index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
  }
  watched_ = instrumented && options().races;
  if (watched_) {
    shadow_.begin_launch();
    find_thread_locals();
  }
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  std::vector<std::uint64_t> order;
  if (options().order != 0) {
    random_.seed(options().order);
    order.resize(blocks);
    std::iota(order.begin(), order.end(), std::uint64_t{0});
    std::shuffle(order.begin(), order.end(), random_);
  }
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t number = order.empty() ? i : order[i];
    block_index = {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
                   static_cast<unsigned>(number / grid.x / grid.y)};
    run_block();
  }
}

void Machine::run_block() {
  ASAN_UNPOISON_MEMORY_REGION(shared_, kMaxSharedBytes + kFenceBytes);
  std::memset(shared_, kFill, shared_bytes_ + kFenceBytes);
  ASAN_POISON_MEMORY_REGION(shared_ + shared_bytes_, kMaxSharedBytes + kFenceBytes - shared_bytes_);
  waiting_lanes_.fill(0);
  at_barrier_ = predicates_ = returned_ = 0;
  forget_copies();
  error_ = nullptr;
  race_.clear();
  last_barrier_ = {};
  if (watched_) shadow_.begin_block(block_index, size_);
  hopper_.begin();
  next_ = 0;
  ready_.clear();
  for (unsigned i = 0; i < size_; ++i) {
    threads_[i].state = State::fresh;
    threads_[i].fibre = nullptr;
    threads_[i].key = nullptr;
    ready_.push_back(&threads_[i]);
  }
  resume(take(), host_);
  if (error_) {
    abandon();
    std::rethrow_exception(error_);
  }
  if (returned_ != size_) {
    const std::string where = where_threads_are();
    abandon();
    fail("threads wait for others that returned or wait elsewhere; " + where);
  }
  hopper_.end();
  ASAN_UNPOISON_MEMORY_REGION(shared_, kMaxSharedBytes + kFenceBytes);
  const auto changed = [](char byte) { return byte != static_cast<char>(kFill); };
  const char* end = shared_ + shared_bytes_;
  if (const char* found = std::find_if(end, end + kFenceBytes, changed); found != end + kFenceBytes)
    fail("a thread wrote behind the dynamic shared memory; got byte " + std::to_string(found - shared_) +
         " of " + std::to_string(shared_bytes_));
}

/// The next thread that can continue; none: all have returned or wait.
Machine::Thread* Machine::take() {
  if (next_ == ready_.size()) return nullptr;
  if (options().order != 0) std::swap(ready_[next_], ready_[next_ + random_() % (ready_.size() - next_)]);
  return ready_[next_++];
}

void Machine::release(Thread& thread) {
  if (next_ >= kMaxThreads) {
    ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(next_));
    next_ = 0;
  }
  thread.state = State::ready;
  ready_.push_back(&thread);
}

/// Leaves `from` for `next`, or for the host if there is none.
void Machine::resume(Thread* next, Fibre& from) {
  current_ = next;
  Fibre* to = next == nullptr ? &host_ : next->fibre;
  if (to == nullptr) {
    if (idle_.empty()) {
      to = &arena_.add(&Machine::enter_worker);
    } else {
      to = idle_.back();
      idle_.pop_back();
    }
    next->fibre = to;
  }
  change(from, *to);
}

void Machine::enter_worker() {
  entered();
  running->work();
}

/// Runs one thread after the other; as long as none of them has to wait, without leaving this stack.
void Machine::work() {
  for (;;) {
    Thread& self = *current_;
    self.state = State::ready;
    thread_index = self.index;
    try {
      watching = watched_;
      body_(arguments_);
      watching = false;
      if (!race_.empty()) fail(race_);
    } catch (const Abandoned&) {
    } catch (...) {
      if (!error_) error_ = std::current_exception();
    }
    watching = false;
    self.state = State::returned;
    ++returned_;
    Thread* next = error_ || abandoning_ ? nullptr : take();
    if (next != nullptr && next->fibre == nullptr) {
      next->fibre = self.fibre;
      current_ = next;
    } else {
      idle_.push_back(self.fibre);
      resume(next, *self.fibre);
    }
  }
}

/// Unwinds the threads that have begun and not returned.
void Machine::abandon() {
  abandoning_ = true;
  for (unsigned i = 0; i < size_; ++i)
    if (threads_[i].state != State::returned && threads_[i].fibre != nullptr) resume(&threads_[i], host_);
  abandoning_ = false;
}

void Machine::park(const void* key, const Call& call) {
  watching = false;
  Thread& self = *current_;
  if (!race_.empty()) fail(race_);
  self.call = call;
  self.state = State::waiting;
  self.key = key;
  resume(take(), *self.fibre);
  if (abandoning_) throw Abandoned{};
  thread_index = self.index;
  watching = watched_;
}

void Machine::wake(const void* key) {
  for (unsigned i = 0; i < size_; ++i) {
    if (threads_[i].key != key) continue;
    threads_[i].key = nullptr;
    release(threads_[i]);
  }
}

std::uint64_t Machine::meet(const Call& call) {
  watching = false;
  Thread& self = *current_;
  if (!race_.empty()) fail(race_);
  self.call = call;
  self.state = State::waiting;
  if (call.operation <= Operation::sync_or)
    arrive_at_barrier(self);
  else
    arrive_in_warp(self);
  if (Thread* next = take(); next != &self) resume(next, *self.fibre);
  if (abandoning_) throw Abandoned{};
  thread_index = self.index;
  watching = watched_;
  return self.result;
}

void Machine::fail(const std::string& what) const {
  throw Fault("[" + std::string(name_) + "] " + what + "; block " +
              describe({block_index.x, block_index.y, block_index.z}) + " of " + describe(grid_size) +
              ", block size " + describe(block_size));
}

/// Runs of threads that are at the same place: "threads 0-31 at __syncthreads (softmax.cu:33)".
std::string Machine::where_threads_are() const {
  static constexpr const char* kNames[] = {
      "__syncthreads", "__syncthreads_or", "__syncwarp",      "__shfl_sync", "__shfl_xor_sync", "a vote",
      "a tensor core", "a phase",          "a named barrier", "wgmma_wait",  "setmaxnreg"};
  const auto place = [](const Thread& thread) -> std::string {
    if (thread.state == State::fresh) return "not begun";
    if (thread.state == State::returned) return "returned";
    if (thread.state == State::ready) return "elsewhere";
    std::ostringstream text;
    text << "at " << kNames[static_cast<int>(thread.call.operation)];
    if (thread.call.operation > Operation::sync_or && thread.call.operation <= Operation::share)
      text << " of mask 0x" << std::hex << thread.call.mask << std::dec;
    text << " (" << thread.call.file << ":" << thread.call.line << ")";
    return text.str();
  };
  std::string text = "got ";
  for (unsigned begin = 0, end = 0; begin < size_; begin = end) {
    const std::string here = place(threads_[begin]);
    while (end < size_ && place(threads_[end]) == here) ++end;
    text += std::string(begin == 0 ? "" : ", ") + (end - begin > 1 ? "threads " : "thread ");
    text += std::to_string(begin) + (end - begin > 1 ? "-" + std::to_string(end - 1) : "") + " " + here;
  }
  return text;
}

}  // namespace tapeformer::emulator
