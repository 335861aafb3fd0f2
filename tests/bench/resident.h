#pragma once

#include <fstream>
#include <string>

namespace tapeformer {

/// In MiB, of this process: "VmHWM:" the most it ever held, "VmRSS:" what it holds. Unlike getrusage's, the
/// most does not begin with what the program held that started this one.
inline double resident_mib(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name, 0) == 0) return std::stod(line.substr(name.size())) / 1024;
  }
  return 0;
}

}  // namespace tapeformer
