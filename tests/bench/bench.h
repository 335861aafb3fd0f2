#pragma once

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <vector>

namespace tapeformer {

// The benches, each a command of the program `bench` with a file of its own name. They take the arguments
// after "bench" on the command line, with "bench NAME" as the first one, and return the exit code.
int bench_decoding(int argc, char** argv);
int bench_device_agreement(int argc, char** argv);
int bench_ops(int argc, char** argv);
int bench_train_step(int argc, char** argv);

/// Seconds, of the wall clock.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Memory of this process in MiB: "VmHWM:" its peak, "VmRSS:" now. Unlike getrusage's, the peak does not
/// include the program that started this one.
inline double resident_mib(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name, 0) == 0) return std::stod(line.substr(name.size())) / 1024;
  }
  return 0;
}

}  // namespace tapeformer
