#include <tapeformer/autograd/threads.h>

#include <omp.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>

namespace tapeformer {
namespace {

// A few times what waking a thread takes. In a small training that has the cores to itself threads then sleep
// a fortieth as often as without spinning; what they spin in vain beside other programs grows with it.
constexpr double kSpinSeconds = 50e-6;

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }

/// How often libgomp's loop goes round in kSpinSeconds: a pause takes three nanoseconds on one processor and
/// fifty on another.
int spin_count() {
  using Clock = std::chrono::steady_clock;
  constexpr int kTurns = 500;
  std::atomic<int> awaited{0};
  double fastest = kSpinSeconds;  // of several, as another program may come between
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Clock::time_point begun = Clock::now();
    for (int i = 0; i < kTurns && awaited.load() == 0; ++i) {
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#endif
    }
    fastest = std::min(fastest, std::chrono::duration<double>(Clock::now() - begun).count());
  }
  return static_cast<int>(kSpinSeconds / std::max(fastest / kTurns, 1e-9));
}

/// Returns only where that fails.
void execute_anew(char** arguments) {
  if (getauxval(AT_SECURE) != 0) return;  // a program with its owner's rights goes by no environment
  if (getauxval(AT_BASE) == 0) return;    // started as an argument of ld.so, which is what would be executed
  if (const auto name = getauxval(AT_EXECFN)) execv(reinterpret_cast<const char*>(name), arguments);
}

/// Processors that one control group gives the time of; 0 where it sets no limit.
double quota_of(const std::string& group) {
  double quota = 0, period = 0;
  if (std::ifstream limit(group + "/cpu.max"); limit >> quota >> period) return quota / period;  // else "max"
  if (!(std::ifstream(group + "/cpu.cfs_quota_us") >> quota) || quota <= 0) return 0;            // else -1
  return std::ifstream(group + "/cpu.cfs_period_us") >> period ? quota / period : 0;
}

}  // namespace

void share_processors(char** arguments) {
  if (!is_set("OMP_WAIT_POLICY") && !is_set("GOMP_SPINCOUNT") &&
      setenv("GOMP_SPINCOUNT", std::to_string(spin_count()).c_str(), 1) == 0) {
    setenv("KMP_BLOCKTIME", "1", 0);  // the same for clang's libomp, whose unit is a millisecond
    execute_anew(arguments);
  }
  const int quota = processor_quota();
  if (quota > 0 && quota < omp_get_max_threads() && !is_set("OMP_NUM_THREADS")) omp_set_num_threads(quota);
}

int processor_quota(const std::string& root) {
  double least = 0;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "0::/group" of version 2, "4:cpu,cpuacct:/group" of version 1
    const std::size_t begin = line.find(':') + 1, end = line.find(':', begin);
    if (begin == 0 || end == std::string::npos) continue;
    const std::string controllers = "," + line.substr(begin, end - begin) + ",";
    if (controllers != ",," && controllers.find(",cpu,") == std::string::npos) continue;
    const std::string mount = root + "/sys/fs/cgroup" + (controllers == ",," ? "" : "/cpu");
    // Every group above limits too. In a container the path may be the host's: its own group is the mount.
    std::string group = line.substr(end + 1);
    while (true) {
      const double quota = quota_of(mount + group);
      if (quota > 0 && (least == 0 || quota < least)) least = quota;
      if (group.empty()) break;
      group.resize(std::min(group.size() - 1, group.rfind('/')));
    }
  }
  return static_cast<int>(std::ceil(least));
}

}  // namespace tapeformer
