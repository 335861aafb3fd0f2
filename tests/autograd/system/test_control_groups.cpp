#include <tapeformer/tests/reference/system_files.h>

#include <doctest/doctest.h>

#include <string>

using namespace tapeformer;

TEST_SUITE("autograd/system/control_groups") {
  TEST_CASE("no control group, no limit") {
    CHECK(processor_quota("/there/is/no/such/folder") == 0);
    CHECK(SystemFiles("").quota() == 0);
    CHECK(SystemFiles("nonsense\n0:").quota() == 0);
  }

  TEST_CASE("version 2: a quota over its period, rounded up") {
    SystemFiles system("0::/app/training");
    CHECK(system.quota() == 0);
    CHECK(system.write("/sys/fs/cgroup/app/training/cpu.max", "max 100000").quota() == 0);
    CHECK(system.write("/sys/fs/cgroup/app/training/cpu.max", "300000 100000").quota() == 3);
    CHECK(system.write("/sys/fs/cgroup/app/training/cpu.max", "300001 100000").quota() == 4);
    CHECK(system.write("/sys/fs/cgroup/app/training/cpu.max", "10000 100000").quota() == 1);
  }

  TEST_CASE("groups above limit too: the least quota counts") {
    SystemFiles system("0::/app/training");
    CHECK(system.write("/sys/fs/cgroup/app/cpu.max", "200000 100000").quota() == 2);
    CHECK(system.write("/sys/fs/cgroup/app/training/cpu.max", "300000 100000").quota() == 2);
    CHECK(system.write("/sys/fs/cgroup/cpu.max", "50000 50000").quota() == 1);
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

  TEST_CASE("version 2: the limit of memory, and what is used that cannot be taken back") {
    SystemFiles system("0::/app/training");
    CHECK(system.memory().limit == 0);
    CHECK(system.write("/sys/fs/cgroup/app/training/memory.max", "max").memory().limit == 0);
    system.write("/sys/fs/cgroup/app/training/memory.max", "300000000");
    CHECK(system.memory().limit == 300000000);
    CHECK(system.memory().used == 0);
    system.write("/sys/fs/cgroup/app/training/memory.stat", "anon 5000\nfile 70000\nshmem 600\nanon_thp 900");
    CHECK(system.memory().used == 5600);
    // What others of the group above use leaves less than the own limit.
    system.write("/sys/fs/cgroup/app/memory.max", "400000000");
    CHECK(system.memory().limit == 300000000);
    system.write("/sys/fs/cgroup/app/memory.stat", "anon 350000000");
    CHECK(system.memory().limit == 400000000);
    CHECK(system.memory().used == 350000000);
  }

  TEST_CASE("version 1: the group of the controller memory, the largest number for no limit") {
    SystemFiles system("4:memory:/app\n2:cpu,cpuacct:/app\n0::/");
    const std::string app = "/sys/fs/cgroup/memory/app/";
    system.write(app + "memory.stat", "rss 10\ntotal_rss 2000\ntotal_shmem 30\nshmem 5\ntotal_cache 70000");
    CHECK(system.write(app + "memory.limit_in_bytes", "9223372036854771712").memory().limit == 0);
    CHECK(system.write(app + "memory.limit_in_bytes", "100000000").memory().limit == 100000000);
    CHECK(system.memory().used == 2030);
  }

  TEST_CASE("a container's group as the root has a limit of memory too") {
    SystemFiles system("4:memory:/docker/0123");
    system.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "50000000");
    CHECK(system.memory().limit == 50000000);
  }

  TEST_CASE("messages say the limits") {
    SystemFiles system("0::/app");
    CHECK(system.memory_text().find("control group") == std::string::npos);
    system.write("/sys/fs/cgroup/app/memory.max", "314572800");
    system.write("/sys/fs/cgroup/app/memory.stat", "anon 209715200");
    CHECK(system.memory_text().find("; of 300 MiB that the control group allows 200 MiB are in use") !=
          std::string::npos);
    CHECK(system.threads_text().find("control group") == std::string::npos);
    CHECK(system.write("/sys/fs/cgroup/app/pids.max", "max").threads_text().find("group") ==
          std::string::npos);
    CHECK(system.write("/sys/fs/cgroup/app/pids.max", "64")
              .threads_text()
              .find("; the control group allows 64") != std::string::npos);
  }
}
