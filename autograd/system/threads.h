#pragma once

#include <memory>
#include <string>

namespace tapeformer {

/// Lets OpenMP's threads get along with other programs, and with a container that may use only part of the
/// machine. Call it once, before the first parallel work.
///
/// OpenMP's threads spin for milliseconds while they wait for each other, which is fastest on an idle
/// machine. On a busy one they spin while the awaited thread has no processor. So a thread checks ten times a
/// second how long the others have waited for a processor; while that is more than a tenth of the time that
/// they wanted to run, threads that wait for each other sleep at once. This is not done if the environment
/// sets OMP_WAIT_POLICY, GOMP_SPINCOUNT or KMP_BLOCKTIME.
///
/// There are at most processor_quota() threads (control_groups.h), unless the environment sets
/// OMP_NUM_THREADS.
void share_processors();

/// From now on OpenMP's parallel regions have `count` threads, or as many as now if it is 0. They are started
/// here, on the thread that will compute: where one cannot be started later, OpenMP ends the program.
/// Throws: Error with the limits if the system does not allow that many
void use_threads(int count = 0);

/// Throws: the same if this process cannot have `count` further threads, and as many again for a moment
void require_threads(int count);

/// While one lives, OpenMP's threads that wait for each other sleep at once instead of spinning.
///
/// libomp has a setting for that. libgomp lets threads spin only while there are at most as many as
/// processors: this makes it start the missing ones and one more, which sleep; it has at least `threads`
/// afterwards.
class SleepingWaits {
 public:
  /// `threads`: what OpenMP's regions will have.
  explicit SleepingWaits(int threads);
  ~SleepingWaits();
  SleepingWaits(const SleepingWaits&) = delete;
  SleepingWaits& operator=(const SleepingWaits&) = delete;

 private:
  struct Threads;
  std::unique_ptr<Threads> threads_;
};

/// For a thread that works in short bursts beside threads that compute: when it wakes it gets a processor at
/// once, and it sleeps no longer than it asks for.
void wake_up_at_once();

/// The time that this process' threads have run, and waited for a processor, in seconds.
struct ProcessorTime {
  /// Seconds, summed over the threads.
  double run = 0, waited = 0;
  int threads = 0;  ///< that were counted
};
/// Read from each task's schedstat under `root`; zeros on a system without it.
ProcessorTime processor_time(const std::string& root = "");

/// Whether they should sleep for the next tenth of a second, after one in which they took `time`.
bool is_busy(const ProcessorTime& time, bool was_busy);

}  // namespace tapeformer
