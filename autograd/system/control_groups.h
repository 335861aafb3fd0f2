#pragma once

#include <cstdint>
#include <string>

// What Linux' control groups (version 1 or 2), and so containers, allow this process, and what messages say
// when that is too little. The system's files are under `root`.
namespace tapeformer {

/// The number of processors whose time the groups allow, rounded up; 0 without a limit.
int processor_quota(const std::string& root = "");

/// The memory of a group, in bytes.
struct GroupMemory {
  std::int64_t limit = 0;  ///< 0 without one
  std::int64_t used = 0;   ///< by all its processes, without what the system takes back (cached files)
};
/// Of the group with a limit that has the least left.
GroupMemory group_memory(const std::string& root = "");

/// The limits of this process' memory, for messages: "; of 500 MiB that ulimit -v allows 480 MiB are taken",
/// and the same of a control group. Empty if nothing limits it.
std::string memory_limits_text(const std::string& root = "");

/// The same of the number of threads: "; ulimit -u allows this user 64", "; the control group allows 16".
std::string thread_limits_text(const std::string& root = "");

}  // namespace tapeformer
