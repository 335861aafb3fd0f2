#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/system/threads.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/threads.h>

#include <doctest/doctest.h>
#include <omp.h>
#include <sched.h>

#include <new>
#include <string>

using namespace tapeformer;

namespace {

/// Files that describe the system, in place of its own.
struct SystemFiles : TemporaryFolder {
  /// With /proc/self/cgroup.
  explicit SystemFiles(const std::string& groups) { write("/proc/self/cgroup", groups); }
  SystemFiles& write(const std::string& path, const std::string& text) {
    const std::filesystem::path to = file("") + path;
    std::filesystem::create_directories(to.parent_path());
    write_bytes(to, text + "\n");
    return *this;
  }
  int quota() const { return processor_quota(file("")); }
};

/// Whether threads run where they are told, which they do not in every sandbox.
bool follows_masks(const cpu_set_t& allowed) {
  bool follows = true;
  for (unsigned processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &allowed)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    follows = follows && sched_setaffinity(0, sizeof one, &one) == 0 &&
              sched_getcpu() == static_cast<int>(processor);
  }
  return sched_setaffinity(0, sizeof allowed, &allowed) == 0 && follows;
}

}  // namespace

TEST_CASE("no control group, no limit") {
  CHECK(processor_quota("/there/is/no/such/folder") == 0);
  CHECK(SystemFiles("").quota() == 0);
  CHECK(SystemFiles("nonsense\n0:").quota() == 0);
}

TEST_CASE("version 2: a quota over its period, rounded up, the least of all groups above") {
  SystemFiles system("0::/app/training");
  CHECK(system.quota() == 0);
  CHECK(system.write("/sys/fs/cgroup/app/training/cpu.max", "max 100000").quota() == 0);
  CHECK(system.write("/sys/fs/cgroup/app/training/cpu.max", "300000 100000").quota() == 3);
  CHECK(system.write("/sys/fs/cgroup/app/training/cpu.max", "300001 100000").quota() == 4);
  CHECK(system.write("/sys/fs/cgroup/app/cpu.max", "200000 100000").quota() == 2);
  CHECK(system.write("/sys/fs/cgroup/cpu.max", "5000 50000").quota() == 1);
}

TEST_CASE("version 1: the group of the controller cpu, -1 for no limit") {
  SystemFiles system("9:name=systemd:/app\n3:cpuset:/\n2:cpu,cpuacct:/app\n0::/");
  CHECK(system.quota() == 0);
  system.write("/sys/fs/cgroup/cpu/app/cpu.cfs_period_us", "50000");
  CHECK(system.write("/sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", "-1").quota() == 0);
  CHECK(system.write("/sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", "75000").quota() == 2);
}

TEST_CASE("in a container that sees its own group as the root, by a path of the host") {
  CHECK(SystemFiles("0::/../training").write("/sys/fs/cgroup/cpu.max", "150000 100000").quota() == 2);
  SystemFiles system("2:cpu:/docker/0123");
  system.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  CHECK(system.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000").quota() == 1);
}

TEST_CASE("a thread leaves the processor of the one that entered its region, and may return") {
  const Threads two(2);
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;  // more processors than the set holds
  const bool has_others = CPU_COUNT(&allowed) > 1 && omp_get_thread_limit() > 1 && follows_masks(allowed);
  cpu_set_t after = allowed;
  int left = 0;
  for (int i = 0; i < 20; ++i) {  // the system may move threads too
    const int processor = sched_getcpu();
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(static_cast<unsigned>(processor), &here);
    const kernels::Team team;
#pragma omp parallel num_threads(2)
    if (omp_get_thread_num() == 1) {
      sched_setaffinity(0, sizeof here, &here), sched_setaffinity(0, sizeof allowed, &allowed);
      team.spread();
      left += sched_getcpu() != processor ? 1 : 0;
      sched_getaffinity(0, sizeof after, &after);
    }
    CHECK(CPU_EQUAL(&after, &allowed));
  }
  if (has_others) CHECK(left > 0);
}

TEST_CASE("an exception in a parallel region reaches the thread that entered it") {
  const Threads restored(1);
  use_threads(2);
  CHECK(omp_get_max_threads() == 2);
  use_threads(0);
  CHECK(omp_get_max_threads() == 2);
  for (const Index bad : {Index{0}, kernels::kParallelWork - 1}) {
    const auto body = [&](Index from, Index to) {
      if (bad >= from && bad < to) throw std::bad_alloc();
    };
    CHECK_THROWS_AS(kernels::parallel_ranges(kernels::kParallelWork, 1, body), std::bad_alloc);
  }
}
