#pragma once

#include <tapeformer/autograd/system/control_groups.h>
#include <tapeformer/autograd/system/threads.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tapeformer {

/// Files as a system has them about itself, until this goes.
class SystemFiles {
 public:
  /// With /proc/self/cgroup.
  explicit SystemFiles(const std::string& groups = {}) { write("/proc/self/cgroup", groups); }
  ~SystemFiles() { std::filesystem::remove_all(root_); }
  SystemFiles(const SystemFiles&) = delete;
  SystemFiles& operator=(const SystemFiles&) = delete;

  SystemFiles& write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
    return *this;
  }
  int quota() const { return processor_quota(root_); }
  GroupMemory memory() const { return group_memory(root_); }
  std::string memory_text() const { return memory_limits_text(root_); }
  std::string threads_text() const { return thread_limits_text(root_); }
  ProcessorTime time() const { return processor_time(root_); }

 private:
  std::string root_ =
      std::filesystem::temp_directory_path() / ("tapeformer_system_" + std::to_string(getpid()));
};

}  // namespace tapeformer
