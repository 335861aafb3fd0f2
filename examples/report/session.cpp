#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/autograd/config/json.h>
#include <tapeformer/examples/report/session.h>
#include <tapeformer/examples/shared/program.h>

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

namespace tapeformer {
namespace {

/// The name of the processor as Linux has it; else what kind it is.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t begin = line.find(": ");
    if (begin != std::string::npos) return line.substr(begin + 2);
  }
#if defined(__x86_64__)
  return "x86-64";
#elif defined(__aarch64__)
  return "AArch64";
#else
  return "unknown";
#endif
}

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32] = "";
  if (gmtime_r(&now, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

constexpr const char* kCompiler =
#if defined(__clang__)
    "clang " __clang_version__;
#else
    "g++ " __VERSION__;
#endif

}  // namespace

Json session_json(const std::string& command) {
  const double pages = static_cast<double>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  return {{"began", time_text()},
          {"command", command},
          {"version", kVersion},
          {"compiler", kCompiler},
          {"processor", processor_name()},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_bytes", pages * static_cast<double>(sysconf(_SC_PAGESIZE))},
          {"host", host_name()}};
}

std::string command_text(int argc, const char* const* argv) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  std::string text;
  for (int i = 0; i < argc; ++i) {
    std::string word = i > 0 ? argv[i] : std::filesystem::path(argv[0]).filename().string();
    if (word.empty() || word.find_first_not_of(kPlain) != std::string::npos) {
      for (std::size_t at = 0; (at = word.find('\'', at)) != std::string::npos; at += 4)
        word.replace(at, 1, "'\\''");
      word = "'" + word + "'";
    }
    text += (i > 0 ? " " : "") + word;
  }
  return text;
}

}  // namespace tapeformer
