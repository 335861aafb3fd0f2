#pragma once

#include <tapeformer/autograd/shape.h>

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <vector>

namespace tapeformer::kernels {

/// Work below this many element visits is not worth waking other threads for (about 10 microseconds).
constexpr Index kParallelWork = 16384;

/// The first exception among a team's threads, which must not leave their region: "out of memory" above all.
class TeamError {
 public:
  template <class Work>
  void guard(const Work& work) {
    try {
      work();
    } catch (...) {
#pragma omp critical(tapeformer_team_error)
      if (!error_) error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
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
  TeamError error;
#pragma omp parallel num_threads(static_cast <int>(threads))
  {
    const Index thread = omp_get_thread_num(),
                team = omp_get_num_threads();  // which may be fewer than requested
    error.guard([&] { body(count * thread / team, count * (thread + 1) / team); });
  }
  error.rethrow();
}

/// The calling thread's library calls use one thread while this exists. In a parallel region too, oneDNN
/// would otherwise divide its work by the number of all threads.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

/// `count` values for this thread, aligned to a vector, valid until the next call with the same Purpose.
template <class Purpose, class T>
T* thread_memory(Index count) {
  thread_local std::vector<T> values;
  const Index needed = count + 64 / static_cast<Index>(sizeof(T));
  if (static_cast<Index>(values.size()) < needed) values = std::vector<T>(static_cast<std::size_t>(needed));
  const auto address = reinterpret_cast<std::uintptr_t>(values.data());
  return values.data() + (64 - address % 64) % 64 / sizeof(T);
}

}  // namespace tapeformer::kernels
