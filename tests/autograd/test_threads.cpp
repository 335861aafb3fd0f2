#include <tapeformer/autograd/threads.h>

#include <doctest/doctest.h>
#include <omp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

using namespace tapeformer;

namespace {

/// Files as a system has them about control groups, until this goes.
class System {
 public:
  explicit System(const std::string& groups) { write("/proc/self/cgroup", groups); }
  ~System() { std::filesystem::remove_all(root_); }
  System(const System&) = delete;
  System& operator=(const System&) = delete;

  System& write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
    return *this;
  }
  int quota() const { return processor_quota(root_); }
  ProcessorTime time() const { return processor_time(root_); }

 private:
  std::string root_ =
      std::filesystem::temp_directory_path() / ("tapeformer_threads_" + std::to_string(getpid()));
};

/// The number of times that this thread has slept.
long sleeps() {
  rusage use{};
  getrusage(RUSAGE_THREAD, &use);
  return use.ru_nvcsw;
}

}  // namespace

TEST_SUITE("autograd/threads") {
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

  TEST_CASE("the time that threads have run and waited is the sum over all of them") {
    System system("");
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

  TEST_CASE("no control group, no limit") {
    CHECK(processor_quota("/there/is/no/such/folder") == 0);
    CHECK(System("").quota() == 0);
    CHECK(System("nonsense\n0:").quota() == 0);
  }

  TEST_CASE("version 2: a quota over its period, rounded up") {
    System system("0::/app/training");
    CHECK(system.quota() == 0);
    CHECK(system.write("/sys/fs/cgroup/app/training/cpu.max", "max 100000").quota() == 0);
    CHECK(system.write("/sys/fs/cgroup/app/training/cpu.max", "300000 100000").quota() == 3);
    CHECK(system.write("/sys/fs/cgroup/app/training/cpu.max", "300001 100000").quota() == 4);
    CHECK(system.write("/sys/fs/cgroup/app/training/cpu.max", "10000 100000").quota() == 1);
  }

  TEST_CASE("groups above limit too: the least quota counts") {
    System system("0::/app/training");
    CHECK(system.write("/sys/fs/cgroup/app/cpu.max", "200000 100000").quota() == 2);
    CHECK(system.write("/sys/fs/cgroup/app/training/cpu.max", "300000 100000").quota() == 2);
    CHECK(system.write("/sys/fs/cgroup/cpu.max", "50000 50000").quota() == 1);
  }

  TEST_CASE("version 1: the group of the controller cpu, -1 for no limit") {
    System system("9:name=systemd:/app\n3:cpuset:/\n2:cpu,cpuacct:/app\n0::/");
    CHECK(system.quota() == 0);
    system.write("/sys/fs/cgroup/cpu/app/cpu.cfs_period_us", "50000");
    CHECK(system.write("/sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", "-1").quota() == 0);
    CHECK(system.write("/sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", "75000").quota() == 2);
  }

  TEST_CASE("in a container that sees its own group as the root, by a path of the host") {
    CHECK(System("0::/../training").write("/sys/fs/cgroup/cpu.max", "150000 100000").quota() == 2);
    System system("2:cpu:/docker/0123");
    system.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
    CHECK(system.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000").quota() == 1);
  }
}
