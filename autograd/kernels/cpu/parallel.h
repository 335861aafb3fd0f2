#pragma once

#include <tapeformer/autograd/shape.h>

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <vector>

namespace tapeformer::kernels {

/// Work below this many element visits is not worth waking other threads for (about 10 microseconds).
constexpr Index kParallelWork = 16384;

/// State that the threads of a parallel region share, made by the thread that enters it.
class Team {
 public:
  /// Moves the calling thread away from the processor of the thread that entered the region. Linux wakes
  /// threads up there, and may leave them both on it for milliseconds while another processor is idle. From
  /// then on a thread that has moved may use only the processors allowed at that moment.
  void spread() const {
    if (omp_get_thread_num() == 0 || processor_ < 0 || sched_getcpu() != processor_) return;
    cpu_set_t allowed, others;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < omp_get_num_threads())
      return;
    others = allowed;
    CPU_CLR(static_cast<unsigned>(processor_), &others);
    if (sched_setaffinity(0, sizeof others, &others) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
  }

  /// Keeps the first exception, which must not leave the region: "out of memory" above all.
  template <class Work>
  void guard(const Work& work) {
    try {
      work();
    } catch (...) {
#pragma omp critical(tapeformer_team)
      if (!error_) error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  const int processor_ = sched_getcpu();
  std::exception_ptr error_;
};

/// Calls `body(from, to)` over disjoint ranges that cover [0, count), one for each thread. The ranges depend
/// only on the number of threads, so results repeat bit for bit. `work` is the cost of one item in element
/// visits.
template <class Body>
void parallel_ranges(Index count, Index work, const Body& body) {
  const Index threads = omp_in_parallel() ? 1 : std::min<Index>(omp_get_max_threads(), count);
  if (threads <= 1 || count * work < kParallelWork) {
    if (count > 0) body(Index{0}, count);
    return;
  }
  Team team;
#pragma omp parallel num_threads(static_cast <int>(threads))
  {
    team.spread();
    const Index thread = omp_get_thread_num(),
                size = omp_get_num_threads();  // which may be fewer than requested
    team.guard([&] { body(count * thread / size, count * (thread + 1) / size); });
  }
  team.rethrow();
}

/// Library calls of this thread use one thread while this exists. Otherwise oneDNN would divide its work by
/// the number of all threads even inside a parallel region.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

/// `count` values for this thread, aligned to a vector, valid until the next call with the same types.
template <class Purpose, class T>
T* thread_memory(Index count) {
  thread_local std::vector<T> values;
  const Index needed = count + 64 / static_cast<Index>(sizeof(T));
  if (static_cast<Index>(values.size()) < needed) values = std::vector<T>(static_cast<std::size_t>(needed));
  const auto address = reinterpret_cast<std::uintptr_t>(values.data());
  return values.data() + (64 - address % 64) % 64 / sizeof(T);
}

}  // namespace tapeformer::kernels
