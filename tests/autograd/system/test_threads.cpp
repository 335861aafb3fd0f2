#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/system/threads.h>
#include <tapeformer/tests/reference/system_files.h>

#include <doctest/doctest.h>
#include <omp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <chrono>
#include <new>
#include <string>
#include <thread>

using namespace tapeformer;

extern "C" void __asan_init() __attribute__((weak));
extern "C" void __tsan_init() __attribute__((weak));

namespace {

/// The number of times that this thread has slept.
long sleeps() {
  rusage use{};
  getrusage(RUSAGE_THREAD, &use);
  return use.ru_nvcsw;
}

}  // namespace

TEST_SUITE("autograd/system/threads") {
  TEST_CASE("a thread that wakes at once sleeps no longer than it asks for, and others as before") {
    const int before = prctl(PR_GET_TIMERSLACK);
    int slack = 0;
    std::thread([&] {
      wake_up_at_once();
      slack = prctl(PR_GET_TIMERSLACK);
    }).join();
    CHECK(slack == 1000);
    CHECK(prctl(PR_GET_TIMERSLACK) == before);
  }

  TEST_CASE("threads that wait for others sleep while they are to") {
    // The first waits for the second, a millisecond each time: a third of what libgomp spins unasked, and far
    // less than libomp does. Only sleeping is asserted, as other programs may make a thread sleep too.
    const SleepingWaits sleeping(2);
    constexpr int kTimes = 20;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until its threads are there
    const long before = sleeps();
    for (int i = 0; i < kTimes; ++i) {
#pragma omp parallel num_threads(2)
      if (omp_get_thread_num() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(sleeps() - before >= kTimes / 2);
  }

  TEST_CASE("an exception in a parallel region reaches who entered it") {
    const int before = omp_get_max_threads();
    omp_set_num_threads(2);
    for (const Index bad : {Index{0}, kernels::kParallelWork - 1}) {
      const auto body = [&](Index from, Index to) {
        if (bad >= from && bad < to) throw std::bad_alloc();
      };
      CHECK_THROWS_AS(kernels::parallel_ranges(kernels::kParallelWork, 1, body), std::bad_alloc);
    }
    omp_set_num_threads(before);
  }

  TEST_CASE("the time that threads have run and waited is the sum over all of them") {
    SystemFiles system;
    CHECK(system.time().threads == 0);
    system.write("/proc/self/task/7/schedstat", "3000000000 500000000 12");
    system.write("/proc/self/task/9/schedstat", "1000000000 250000000 3");
    const ProcessorTime time = system.time();
    CHECK(time.run == doctest::Approx(4));
    CHECK(time.waited == doctest::Approx(0.75));
    CHECK(time.threads == 2);
    CHECK(processor_time("/there/is/no/such/folder").threads == 0);
  }

  TEST_CASE("a machine is busy when threads wait for a tenth of their time, and until it is a twentieth") {
    CHECK(!is_busy({0.2, 0.0, 2}, false));
    CHECK(!is_busy({0.19, 0.012, 2}, false));
    CHECK(is_busy({0.17, 0.03, 2}, false));
    CHECK(is_busy({0.19, 0.012, 2}, true));
    CHECK(!is_busy({0.2, 0.004, 2}, true));
    CHECK(!is_busy({0.0001, 0.0005, 2}, false));  // does next to nothing
  }

  TEST_CASE("threads that the system allows are there at once, and those it does not are refused") {
    const int before = omp_get_max_threads();
    use_threads(3);
    CHECK(omp_get_max_threads() == 3);
    CHECK(processor_time().threads >= 3);
    use_threads();
    CHECK(omp_get_max_threads() == 3);
    use_threads(before);
    if (__asan_init != nullptr || __tsan_init != nullptr) return;  // they cannot do without memory
    rlimit allowed{};
    getrlimit(RLIMIT_AS, &allowed);
    rlimit least = allowed;
    least.rlim_cur = 1;  // there is no room for a stack
    setrlimit(RLIMIT_AS, &least);
    std::string message;
    try {
      require_threads(1000);
    } catch (const Error& error) {
      message = error.what();
    }
    setrlimit(RLIMIT_AS, &allowed);
    CHECK(message.find("[threads] the system must allow 2000 more threads at times; got ") == 0);
    CHECK(message.find(" that ulimit -v allows ") != std::string::npos);
    CHECK(message.find("OMP_NUM_THREADS=") != std::string::npos);
    require_threads(2);
  }
}
