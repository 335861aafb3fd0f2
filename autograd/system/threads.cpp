#include <tapeformer/autograd/system/threads.h>

#include <omp.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <vector>

namespace tapeformer {
namespace {

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }

/// Executes the program again. Returns only if that fails or is impossible: a setuid program ignores its
/// environment, and for a program run through ld.so another one would be executed.
void execute_again() {
  const auto name = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  if (name == nullptr || getauxval(AT_SECURE) != 0 || getauxval(AT_BASE) == 0) return;
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  file.close();               // execv() would leave it open
  if (words.empty()) return;  // without /proc the arguments would be lost
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(name, arguments.data());
}

/// The number of processors whose time a group allows; 0 without a limit.
double quota_of(const std::string& group) {
  double quota = 0, period = 0;
  if (std::ifstream limit(group + "/cpu.max"); limit >> quota >> period) return quota / period;  // else "max"
  if (!(std::ifstream(group + "/cpu.cfs_quota_us") >> quota) || quota <= 0) return 0;            // else -1
  return std::ifstream(group + "/cpu.cfs_period_us") >> period ? quota / period : 0;
}

}  // namespace

void share_processors() {
  if (!is_set("OMP_WAIT_POLICY") && !is_set("GOMP_SPINCOUNT") && !is_set("KMP_BLOCKTIME")) {
    setenv("GOMP_SPINCOUNT", "1000", 1);
    setenv("KMP_BLOCKTIME", "1", 1);  // for libomp, in milliseconds
    execute_again();
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
    // Every group above limits too. In a container the path may be the host's; its mount is then its group.
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

void use_threads(int count) {
  if (count > 0) omp_set_num_threads(count);
}

}  // namespace tapeformer
