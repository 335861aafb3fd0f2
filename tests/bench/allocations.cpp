// Small tensors made and dropped by several threads at once.
// Usage: bench allocations [--threads N] [--bytes N] [--live N] [--seconds X]
#include <tapeformer/autograd/storage.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/tests/bench/bench.h>
#include <tapeformer/tests/bench/clock.h>

#include <cstdio>
#include <thread>
#include <vector>

namespace tapeformer {
namespace {

constexpr int kBetweenLooks = 64;  // allocations and frees before the time is looked at

/// Of one thread: how many storages it made and dropped in `seconds`, `live` of them at once.
double storages_made(std::size_t bytes, std::size_t live, double seconds) {
  std::vector<Handle<Storage>> storages(live);
  double made = 0;
  for (const double end = now() + seconds; now() < end; made += kBetweenLooks) {
    for (int i = 0; i < kBetweenLooks; ++i) {
      Handle<Storage>& next = storages[static_cast<std::size_t>(made + i) % live];
      next = Handle<Storage>();
      next = Handle<Storage>(new Storage(bytes, Device::cpu()));
      *static_cast<char*>(next->data) = 1;
    }
  }
  return made;
}

}  // namespace

int bench_allocations(int argc, char** argv) {
  Index most = 4, bytes = 256, live = 16;
  double seconds = 0.3;
  const CommandLine line("Storages made and dropped by 1, 2, 4 ... threads at once.");
  line.option("--threads", most, "the most", kPositive);
  line.option("--bytes", bytes, "of each", kPositive);
  line.option("--live", live, "that each thread holds", kPositive);
  line.option("--seconds", seconds, "for each number of threads", kPositive);
  if (!line.read(argc, argv)) return kExitSuccess;
  std::printf("threads  million storages a second, together\n");
  for (Index count = 1; count <= most; count *= 2) {
    std::vector<double> made(static_cast<std::size_t>(count));
    std::vector<std::thread> threads;
    for (double& of_one : made) {
      threads.emplace_back([&] {
        of_one = storages_made(static_cast<std::size_t>(bytes), static_cast<std::size_t>(live), seconds);
      });
    }
    double all = 0;
    for (std::size_t i = 0; i < threads.size(); ++i) {
      threads[i].join();
      all += made[i];
    }
    std::printf("%7lld  %.2f\n", static_cast<long long>(count), 1e-6 * all / seconds);
  }
  return kExitSuccess;
}

}  // namespace tapeformer
