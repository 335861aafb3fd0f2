#include <tapeformer/autograd/system/control_groups.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>

namespace tapeformer {
namespace {

/// Calls `see` with the folder of each group that limits what `controller` of version 1 and all of version 2
/// control.
void for_each_group(const std::string& root, const std::string& controller,
                    const std::function<void(const std::string& folder)>& see) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "0::/group" of version 2, "4:cpu,cpuacct:/group" of version 1
    const std::size_t begin = line.find(':') + 1, end = line.find(':', begin);
    if (begin == 0 || end == std::string::npos) continue;
    const std::string controllers = "," + line.substr(begin, end - begin) + ",";
    const bool second = controllers == ",,";
    if (!second && controllers.find("," + controller + ",") == std::string::npos) continue;
    const std::string mount = root + "/sys/fs/cgroup" + (second ? "" : "/" + controller);
    // Every group above limits too. In a container the path may be the host's; the mount is then its own
    // group.
    std::string group = line.substr(end + 1);
    while (true) {
      see(mount + group);
      if (group.empty()) break;
      group.resize(std::min(group.size() - 1, group.rfind('/')));
    }
  }
}

/// The number of processors whose time a group allows; 0 without a limit.
double quota_of(const std::string& group) {
  double quota = 0, period = 0;
  if (std::ifstream limit(group + "/cpu.max"); limit >> quota >> period) return quota / period;  // else "max"
  if (!(std::ifstream(group + "/cpu.cfs_quota_us") >> quota) || quota <= 0) return 0;            // else -1
  return std::ifstream(group + "/cpu.cfs_period_us") >> period ? quota / period : 0;
}

GroupMemory memory_of(const std::string& group) {
  constexpr std::int64_t kNone = std::int64_t{1} << 60;  // version 1 says the largest number of whole pages
  GroupMemory memory;
  const bool second(std::ifstream(group + "/memory.max") >> memory.limit);  // else "max", or version 1
  if (!second && !(std::ifstream(group + "/memory.limit_in_bytes") >> memory.limit)) return {};
  if (memory.limit >= kNone) return {};
  std::ifstream statistics(group + "/memory.stat");
  std::string name;
  for (std::int64_t bytes = 0; statistics >> name >> bytes;) {
    const bool counts =
        second ? name == "anon" || name == "shmem" : name == "total_rss" || name == "total_shmem";
    if (counts) memory.used += bytes;
  }
  return memory;
}

std::string mebibytes(std::int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

/// Of this process' address space; 0 where the system does not say.
std::int64_t address_space(const std::string& root) {
  std::int64_t pages = 0;
  std::ifstream(root + "/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

bool get_limit(__rlimit_resource_t of, std::int64_t& limit) {
  rlimit limits{};
  if (getrlimit(of, &limits) != 0 || limits.rlim_cur == RLIM_INFINITY) return false;
  limit = static_cast<std::int64_t>(limits.rlim_cur);
  return true;
}

}  // namespace

int processor_quota(const std::string& root) {
  double least = 0;
  for_each_group(root, "cpu", [&](const std::string& group) {
    const double quota = quota_of(group);
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
  });
  return static_cast<int>(std::ceil(least));
}

GroupMemory group_memory(const std::string& root) {
  GroupMemory least;
  for_each_group(root, "memory", [&](const std::string& group) {
    const GroupMemory memory = memory_of(group);
    if (memory.limit == 0) return;
    if (least.limit == 0 || memory.limit - memory.used < least.limit - least.used) least = memory;
  });
  return least;
}

std::string memory_limits_text(const std::string& root) {
  std::string text;
  if (std::int64_t limit = 0; get_limit(RLIMIT_AS, limit))
    text += "; of " + mebibytes(limit) + " that ulimit -v allows " + mebibytes(address_space(root)) +
            " are taken";
  if (const GroupMemory group = group_memory(root); group.limit > 0)
    text += "; of " + mebibytes(group.limit) + " that the control group allows " + mebibytes(group.used) +
            " are in use";
  return text;
}

std::string thread_limits_text(const std::string& root) {
  std::string text;
  if (std::int64_t limit = 0; get_limit(RLIMIT_NPROC, limit))
    text += "; ulimit -u allows this user " + std::to_string(limit);
  std::int64_t least = 0;
  for_each_group(root, "pids", [&](const std::string& group) {
    std::int64_t limit = 0;
    if (std::ifstream(group + "/pids.max") >> limit && (least == 0 || limit < least)) least = limit;
  });
  if (least > 0) text += "; the control group allows " + std::to_string(least);
  return text;
}

}  // namespace tapeformer
