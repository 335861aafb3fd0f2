#pragma once

#include <memory>
#include <string>

namespace tapeformer {

/// Lets OpenMP's threads get along with other programs, and with a container that may use only a part of the
/// machine. Call it once, before the first parallel work.
///
/// OpenMP's threads spin for milliseconds where they wait for each other, which is the fastest on an idle
/// machine. On a busy one they spin while the awaited thread has no processor. So a thread looks ten times a
/// second how long the others have waited for a processor, and while that is a tenth of the time that they
/// wanted to run, those that wait for each other sleep at once. Left out where the environment has
/// OMP_WAIT_POLICY, GOMP_SPINCOUNT or KMP_BLOCKTIME.
///
/// There are at most as many threads as processor_quota(), unless the environment has OMP_NUM_THREADS.
void share_processors();

/// While there is one, OpenMP's threads that wait for each other sleep at once instead of spinning.
///
/// libomp has a setting for that. libgomp lets threads spin only while it has at most as many as there are
/// processors: it is made to start the missing ones and one more, which sleep; `threads` is how many it has
/// at least.
class SleepingWaits {
 public:
  explicit SleepingWaits(int threads);
  ~SleepingWaits();
  SleepingWaits(const SleepingWaits&) = delete;
  SleepingWaits& operator=(const SleepingWaits&) = delete;

 private:
  struct Threads;
  std::unique_ptr<Threads> threads_;
};

/// How long the threads of this process have run, and how long they waited for a processor, in seconds.
struct ProcessorTime {
  double run = 0, waited = 0;
  int threads = 0;
};
/// From the schedstat of each of its tasks, zeros on a system without; `root` is where its files are.
ProcessorTime processor_time(const std::string& root = "");

/// Whether they should go on sleeping, or begin to, after a tenth of a second in which they took `time`.
bool is_busy(const ProcessorTime& time, bool was_busy);

/// How many processors the control groups of this process (version 1 or 2) give it the time of, rounded up;
/// 0 where there is no limit. `root` is where the system's files are.
int processor_quota(const std::string& root = "");

}  // namespace tapeformer
