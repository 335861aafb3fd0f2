// The head of a language model and its loss: linear_cross_entropy against cross_entropy(linear(...)), time
// and the most pool memory of a forward and a backward pass.
// Usage: bench head_loss [--tokens N...] [--classes V] [--width C] [--chunks ROWS...] [--repeats N]
//                        [--processor-time]
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/tests/bench/bench.h>
#include <tapeformer/tests/bench/clock.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace tapeformer;

namespace {

constexpr Index kPlain = -1;

struct Inputs {
  Inputs(Index tokens, Index width, Index classes) {
    Generator random(7);
    x = Tensor::randn({tokens, width}, random);
    const Tensor initial = Tensor::empty({classes, width});
    random.fill_normal(initial, 0, 0.02);
    weight = Parameter(initial);
    targets = Tensor::empty({tokens}, DType::i32);
    for (Index i = 0; i < tokens; ++i)
      targets.data<std::int32_t>()[i] = static_cast<std::int32_t>(random.below(classes));
  }
  Tensor x, targets;
  Parameter weight;
};

Tensor loss_of(const Inputs& in, Index chunk) {
  if (chunk == kPlain) return cross_entropy(linear(in.x, in.weight.value()), in.targets);
  LinearCrossEntropyOptions options;
  options.chunk = chunk;
  return linear_cross_entropy(in.x, in.weight.value(), {}, in.targets, options);
}

bool counts_processor_time = false;

double measured_seconds() { return counts_processor_time ? processor_seconds() : now(); }

/// Seconds of a forward and a backward pass, which leaves the weight's gradient as a first step would.
double step(Inputs& in, Index chunk) {
  in.weight.clear_gradient();
  const double begun = measured_seconds();
  Tape tape;
  tape.watch(in.x);
  tape.backward(loss_of(in, chunk));
  return measured_seconds() - begun;
}

/// What a step adds to the pool's peak, in MiB, in a process of its own; the weight's gradient has its
/// buffer.
double peak_memory(Index tokens, Index width, Index classes, Index chunk) {
  int ends[2];
  if (pipe(ends) != 0) return NAN;
  double result = NAN;
  const pid_t child = fork();
  if (child == 0) {
    Inputs in(tokens, width, classes);
    Inputs one(1, width, classes);
    one.weight = in.weight;
    step(one, kPlain);
    const auto before = static_cast<double>(pool_statistics().in_use_bytes);
    step(in, chunk);
    result = (static_cast<double>(pool_statistics().peak_bytes) - before) / (1 << 20);
    _exit(write(ends[1], &result, sizeof result) == sizeof result ? 0 : 1);
  }
  close(ends[1]);
  if (child < 0 || read(ends[0], &result, sizeof result) != sizeof result) result = NAN;
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return result;
}

/// Medians of runs in turn, so that what else the machine does meets all paths alike.
void measure(Index tokens, Index width, Index classes, const std::vector<Index>& chunks, int repeats) {
  // Forks come before this process has threads.
  std::vector<double> memory;
  for (const Index chunk : chunks) memory.push_back(peak_memory(tokens, width, classes, chunk));
  const pid_t child = fork();  // so that the next size finds no threads either
  if (child != 0) {
    waitpid(child, nullptr, 0);
    return;
  }
  Inputs in(tokens, width, classes);
  std::vector<std::vector<double>> seconds(chunks.size()), ratios(chunks.size());
  std::vector<double> loss_only;
  for (int repeat = -1; repeat < repeats; ++repeat) {
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const double taken = step(in, chunks[i]);
      if (repeat < 0) continue;
      seconds[i].push_back(taken);
      ratios[i].push_back(taken / seconds[0].back());
    }
    const double begun = measured_seconds();
    loss_of(in, 0);
    if (repeat >= 0) loss_only.push_back(measured_seconds() - begun);
  }
  std::printf("tokens %lld, width %lld, classes %lld; the loss alone, without a tape: %.2f ms\n",
              static_cast<long long>(tokens), static_cast<long long>(width), static_cast<long long>(classes),
              1e3 * median(loss_only));
  std::printf("  %-14s %10s %10s %10s %8s %6s %6s %10s\n", "rows a chunk", "median ms", "least ms", "most ms",
              "ratio", "least", "most", "peak MiB");
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const auto [least, most] = std::minmax_element(seconds[i].begin(), seconds[i].end());
    const auto [lowest, highest] = std::minmax_element(ratios[i].begin(), ratios[i].end());
    const std::string name = chunks[i] == kPlain ? "plain"
                             : chunks[i] == 0    ? "default"
                                                 : std::to_string(chunks[i]);
    std::printf("  %-14s %10.2f %10.2f %10.2f %8.3f %6.3f %6.3f %10.1f\n", name.c_str(),
                1e3 * median(seconds[i]), 1e3 * *least, 1e3 * *most, median(ratios[i]), *lowest, *highest,
                memory[i]);
  }
  std::fflush(stdout);
  _exit(0);
}

}  // namespace

int tapeformer::bench_head_loss(int argc, char** argv) {
  const CommandLine line("linear_cross_entropy against cross_entropy(linear(...))");
  std::vector<Index> tokens{256, 4096}, chunks{0};
  Index classes = 50257, width = 768;
  int repeats = 7;
  line.option("--tokens", tokens);
  line.option("--classes", classes);
  line.option("--width", width);
  line.option("--chunks", chunks, "rows; 0 for the default");
  line.option("--repeats", repeats);
  line.flag("--processor-time", counts_processor_time,
            "with one thread, the time on a machine that others use too");
  if (!line.read(argc, argv)) return 0;
  chunks.insert(chunks.begin(), kPlain);
  for (const Index count : tokens) measure(count, width, classes, chunks, repeats);
  return 0;
}
