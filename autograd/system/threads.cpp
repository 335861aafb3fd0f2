#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/system/control_groups.h>
#include <tapeformer/autograd/system/threads.h>

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

// libomp's: changes what its variables in the environment have set, also between parallel regions.
extern "C" void kmp_set_defaults(const char* settings) __attribute__((weak));

namespace tapeformer {
namespace {

constexpr std::chrono::milliseconds kPeriod(100);
constexpr int kOthers = 2;  // threads outside OpenMP: this one, and one that waits for signals

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }

/// Checks, as long as the program runs, whether other programs want the processors.
void watch_processors() try {
  std::optional<SleepingWaits> sleeping;
  for (ProcessorTime before = processor_time(); true;) {
    std::this_thread::sleep_for(kPeriod);
    const ProcessorTime now = processor_time();
    const ProcessorTime between{now.run - before.run, now.waited - before.waited, now.threads};
    const bool busy = is_busy(between, sleeping.has_value());
    if (busy && !sleeping) sleeping.emplace(now.threads - kOthers);
    if (!busy) sleeping.reset();
    before = now;
  }
} catch (const std::exception&) {  // no more threads or files: OpenMP's behaviour stays
}

/// Keeps threads asleep until it opens.
class Gate {
 public:
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

}  // namespace

void share_processors() {
  const int quota = processor_quota();
  if (quota > 0 && quota < omp_get_max_threads() && !is_set("OMP_NUM_THREADS")) omp_set_num_threads(quota);
  if (is_set("OMP_WAIT_POLICY") || is_set("GOMP_SPINCOUNT") || is_set("KMP_BLOCKTIME")) return;
  sigset_t all, before;  // signals must go to the threads of the program
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(watch_processors).detach();
  } catch (const std::system_error&) {  // no more threads
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void require_threads(int count) {
  // OpenMP ends threads that a region does not need and starts them again, and the system counts one for a
  // while after its end.
  const int needed = 2 * count;
  Gate gate;
  std::vector<std::thread> threads;
  std::exception_ptr failure;
  try {
    threads.reserve(static_cast<std::size_t>(std::max(needed, 0)));
    for (int i = 0; i < needed; ++i) threads.emplace_back([&gate] { gate.wait(); });
  } catch (const std::exception&) {  // no more threads, or no memory for their stacks
    failure = std::current_exception();
  }
  const std::size_t started = threads.size();
  gate.open();
  for (std::thread& thread : threads) thread.join();
  if (!failure) return;
  const std::string fewer = std::to_string(started / 2 + 1);
  throw Error("[threads] the system must allow " + std::to_string(needed) + " more threads at times; got " +
              std::to_string(started) + thread_limits_text() + memory_limits_text() + "; try --threads " +
              fewer + ", or OMP_NUM_THREADS=" + fewer);
}

void use_threads(int count) {
  static int running = 1;
  if (count > 0) omp_set_num_threads(count);
  const int wanted = omp_get_max_threads();
  if (wanted > running) require_threads(wanted - running);
#pragma omp parallel num_threads(wanted)
  {
#pragma omp master
    running = omp_get_num_threads();
  }
}

void wake_up_at_once() {
  prctl(PR_SET_TIMERSLACK, 1000);  // nanoseconds
  // Linux 6.12 and newer preempt for the thread that asks for the shorter slice; older ones refuse this, and
  // preempt for any that has slept.
  struct {
    std::uint32_t size = 48, policy = SCHED_OTHER;
    std::uint64_t flags = 0;
    std::int32_t nice = getpriority(PRIO_PROCESS, 0);
    std::uint32_t priority = 0;
    std::uint64_t runtime = 100'000, deadline = 0, period = 0;  // nanoseconds
  } attributes;
  static_assert(sizeof attributes == 48, "the kernel's struct sched_attr");
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

struct SleepingWaits::Threads {
  Gate gate;
  std::thread first;  // has a team of its own, which libgomp drops when it ends

  void sleep(int count) {
#pragma omp parallel num_threads(count)
    gate.wait();
  }
};

SleepingWaits::SleepingWaits(int threads) {
  if (kmp_set_defaults != nullptr) {
    kmp_set_defaults("KMP_BLOCKTIME=0");
    return;
  }
  const int count = std::max(omp_get_num_procs() - threads + 2, 2);
  require_threads(count);
  threads_ = std::make_unique<Threads>();
  threads_->first = std::thread([threads = threads_.get(), count] { threads->sleep(count); });
}

SleepingWaits::~SleepingWaits() {
  if (threads_ == nullptr) {
    kmp_set_defaults("KMP_BLOCKTIME=200");  // milliseconds, as libomp has it
    return;
  }
  threads_->gate.open();
  threads_->first.join();
}

ProcessorTime processor_time(const std::string& root) {
  ProcessorTime total;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(root + "/proc/self/task", error)) {
    double run = 0, waited = 0;  // nanoseconds
    if (!(std::ifstream(task.path() / "schedstat") >> run >> waited)) continue;
    total.run += 1e-9 * run;
    total.waited += 1e-9 * waited;
    ++total.threads;
  }
  return total;
}

bool is_busy(const ProcessorTime& time, bool was_busy) {
  const double share = was_busy ? 0.05 : 0.1;  // on an idle machine it is about a hundredth
  const double least = 0.01 * std::chrono::duration<double>(kPeriod).count();
  return time.waited > least && time.waited > share * (time.run + time.waited);
}

}  // namespace tapeformer
