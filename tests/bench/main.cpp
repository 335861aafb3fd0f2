// Usage: bench NAME [ARGUMENTS...]; bench --help lists the names, bench NAME --help the arguments of each.
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/tests/bench/bench.h>

#include <cstdio>

namespace tapeformer {
namespace {

struct Bench {
  const char* name;
  const char* about;
  int (*run)(int argc, char** argv);
};
constexpr Bench kBenches[] = {
    {"decoding", "write and translate with each cache and without, on a GPU also as graphs", bench_decoding},
    {"device_agreement", "train on the CPU and on a GPU in each precision, and compare the losses",
     bench_device_agreement},
    {"ops", "single operations: time, rate, and share of what the machine can do", bench_ops},
    {"train_step", "full training steps; one line of JSON per workload", bench_train_step},
};

void list() {
  std::printf("Usage: bench NAME [ARGUMENTS...]; bench NAME --help says which.\n\n");
  for (const Bench& bench : kBenches) std::printf("  %-18s%s\n", bench.name, bench.about);
}

int run(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if (name == "--help" || name == "-h") return list(), kExitSuccess;
  for (const Bench& bench : kBenches) {
    if (bench.name != name) continue;
    std::string program = "bench " + name;
    argv[1] = program.data();
    return run_program(program.c_str(), [&] { return bench.run(argc - 1, argv + 1); });
  }
  const std::string wrong = name.empty() ? "name a bench" : "there is no bench " + name;
  std::fprintf(stderr, "bench: %s; try --help\n", wrong.c_str());
  return kExitBadInput;
}

}  // namespace
}  // namespace tapeformer

int main(int argc, char** argv) { return tapeformer::run(argc, argv); }
