// Usage: bench NAME [ARGUMENTS...]; bench --help lists the names, bench NAME --help what each takes.
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/tests/bench/bench.h>

#include <cstdio>
#include <string>

namespace tapeformer {
namespace {

struct Bench {
  const char* name;
  const char* about;
  int (*run)(int argc, char** argv);
};
constexpr Bench kBenches[] = {
    {"allocations", "small tensors made and dropped by several threads at once", bench_allocations},
    {"attention", "tiled attention against plain operations: time, memory and errors", bench_attention},
    {"character_recipe", "train nanoGPT's character model, for comparison with PyTorch",
     bench_character_recipe},
    {"communication", "the sum of all ranks' numbers by size; started by mpirun", bench_communication},
    {"decoding", "write and translate with each cache and without, on a GPU also as graphs", bench_decoding},
    {"device_agreement", "train on the CPU and on a GPU in each precision, and compare the losses",
     bench_device_agreement},
    {"head_loss", "a language model's head with its loss, whole and in chunks", bench_head_loss},
    {"linear_attention", "attention with a state beside softmax attention, by length",
     bench_linear_attention},
    {"ops", "single operations: time, rate, and share of what the machine can do", bench_ops},
    {"optimizer_step", "an optimizer's update: time, and for Muon the products' share of a step",
     bench_optimizer_step},
    {"parsing", "what reads files of other people, by the size of the file", bench_parsing},
    {"tokenizing", "byte-level BPE over a file", bench_tokenizing},
    {"train_step", "full training steps; one line of JSON a workload", bench_train_step},
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
