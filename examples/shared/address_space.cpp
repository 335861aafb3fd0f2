#include <tapeformer/examples/shared/address_space.h>
#include <tapeformer/examples/shared/program.h>

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tapeformer {
namespace {

constexpr std::size_t kMebibyte = 1 << 20;
constexpr std::size_t kOfThread = 128 * kMebibyte;  // OpenBLAS' buffer
constexpr std::size_t kOfOthers = 16 * kMebibyte;

/// The number of OpenBLAS' threads: OMP_NUM_THREADS, and at most one for each processor.
std::size_t blas_threads(char** environment) {
  constexpr char kVariable[] = "OMP_NUM_THREADS=";
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  const int processors = std::max(CPU_COUNT(&allowed), 1);
  int threads = processors;
  for (; *environment != nullptr; ++environment)
    if (std::strncmp(*environment, kVariable, sizeof kVariable - 1) == 0)
      threads = std::atoi(*environment + sizeof kVariable - 1);
  return static_cast<std::size_t>(std::clamp(threads, 1, processors));
}

}  // namespace

void end_without_address_space(int argc, char** argv, char** environment) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const std::size_t needed = blas_threads(environment) * kOfThread + kOfOthers;
  void* const probe = mmap(nullptr, needed, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe != MAP_FAILED) {
    munmap(probe, needed);
    return;
  }
  const char* name = argc > 0 ? argv[0] : "";
  if (const char* slash = std::strrchr(name, '/'); slash != nullptr) name = slash + 1;
  char line[400];
  const int length =
      std::snprintf(line, sizeof line,
                    "%s: [memory] the libraries take %zu MiB of address space when they start, beside the "
                    "program's; got ulimit -v %zu, which is %zu MiB; try a higher limit, or fewer threads: "
                    "OMP_NUM_THREADS=1\n",
                    name, needed / kMebibyte, static_cast<std::size_t>(limit.rlim_cur) / 1024,
                    static_cast<std::size_t>(limit.rlim_cur) / kMebibyte);
  const std::size_t bytes = std::min(static_cast<std::size_t>(std::max(length, 0)), sizeof line - 1);
  if (write(STDERR_FILENO, line, bytes) < 0) _exit(kExitBadInput);
  _exit(kExitBadInput);
}

}  // namespace tapeformer
