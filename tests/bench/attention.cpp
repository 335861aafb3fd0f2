// Tiled attention against the same in plain operations: time, memory and errors at several lengths.
// Usage: bench attention [--lengths T...] [--batch B] [--heads H] [--groups G] [--width D] [--causal]
//                        [--dropout P] [--double] [--repeats N] [--no-errors]
//                        [--modifier softcap|relative|mask|key_mask|sinks|sigmoid]: of the scores
//                        [--processor-time]: with one thread, the time on a machine that others use too
//        bench attention --ask --lengths T ...: tiled attention alone, timed anew at every line of input,
//                        answered with a line of JSON: milliseconds of each pass, MiB that both added to the
//                        most held
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/tests/bench/bench.h>
#include <tapeformer/tests/bench/clock.h>
#include <tapeformer/tests/bench/gemm_rate.h>
#include <tapeformer/tests/bench/resident.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>

using namespace tapeformer;

namespace {

enum Path { fused, composed, paths };

struct Workload {
  Index batch = 1, heads = 1, groups = 0, width = 64;
  bool causal = false;
  double dropout = 0;
  std::string modifier = "none";
  DType type = DType::f32;
  int repeats = 7;

  /// Multiplications and additions of the forward pass's two products; the backward pass has five.
  double flops(Index length) const {
    return 4.0 * static_cast<double>(batch * heads * width) * static_cast<double>(length * length) *
           (causal ? 0.5 : 1.0);
  }
};

/// Its options, and what of them gets a gradient.
struct Modifier {
  AttentionModifiers options;
  Tensor mask, learned;

  Modifier(const std::string& name, Index heads, Index length, DType type, Generator& random) {
    const auto draw = [&](const Shape& shape) { return learned = Tensor::randn(shape, random).to(type); };
    if (name == "softcap")
      options.score_function = ScoreFunction::softcap,
      options.score_parameter = learned = Tensor::full({heads}, 5, type);
    else if (name == "relative")
      options.relative_bias = draw({heads, 2 * length - 1});
    else if (name == "mask")
      mask = draw({length, length});
    else if (name == "key_mask")
      mask = draw({heads, 1, length});
    else if (name == "sinks")
      options.sinks = draw({heads});
    else if (name == "sigmoid")
      options.weighting = AttentionWeighting::sigmoid;
    else if (name != "none")
      throw Error("[bench] no modifier " + name);
  }
};

struct Inputs {
  Inputs(const Workload& w, Index length, DType type) {
    Generator random(7);
    const auto draw = [&](Index heads) {
      return Tensor::randn({w.batch, length, heads, w.width}, random).to(type);
    };
    query = draw(w.heads), key = draw(w.groups), value = draw(w.groups), dy = draw(w.heads);
    modifier = std::make_shared<Modifier>(w.modifier, w.heads, length, type, random);
  }
  Tensor query, key, value, dy;
  std::shared_ptr<Modifier> modifier;
};

bool counts_processor_time = false;

double seconds() { return counts_processor_time ? processor_seconds() : now(); }

struct Pass {
  double forward = 0, backward = 0;  // seconds
  std::vector<Tensor> results;       // the output and the gradients of query, key, value and a modifier
};

Pass run(Path path, const Workload& w, const Inputs& in) {
  AttentionOptions options;
  options.causal = w.causal, options.dropout = w.dropout, options.dropout_key = {1, 2, 3};
  static_cast<AttentionModifiers&>(options) = in.modifier->options, options.mask = in.modifier->mask;
  std::vector<Tensor> inputs{in.query, in.key, in.value};
  if (in.modifier->learned.defined()) inputs.push_back(in.modifier->learned);
  Pass pass;
  Tape tape;
  for (const Tensor& x : inputs) tape.watch(x);
  const double begun = seconds();
  const Tensor y = path == fused ? scaled_dot_product_attention(in.query, in.key, in.value, options)
                                 : composed_attention(in.query, in.key, in.value, options);
  pass.forward = seconds() - begun;
  pass.results = tape.gradients(y, inputs, in.dy);
  pass.backward = seconds() - begun - pass.forward;
  pass.results.insert(pass.results.begin(), y);
  return pass;
}

void wake_threads(Path path, Workload w) {
  w.batch = 1;
  run(path, w, Inputs(w, 16, w.type));
}

/// The peak memory that a forward and a backward pass add to this process, in MiB.
double added_memory(Path path, const Workload& w, const Inputs& in) {
  const double before = resident_mib("VmRSS:");
  run(path, w, in);
  return resident_mib("VmHWM:") - before;
}

/// The same in a process of their own.
double peak_memory(Path path, const Workload& w, Index length) {
  int ends[2];
  if (pipe(ends) != 0) return NAN;
  double result = NAN;
  const pid_t child = fork();
  if (child == 0) {
    wake_threads(path, w);
    result = added_memory(path, w, Inputs(w, length, w.type));
    _exit(write(ends[1], &result, sizeof result) == sizeof result ? 0 : 1);
  }
  close(ends[1]);
  if (child < 0 || read(ends[0], &result, sizeof result) != sizeof result) result = NAN;
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return result;
}

/// max |a - b| / max |b|
double error(const Tensor& a, const Tensor& b) {
  double worst = 0, largest = 0;
  for (Index i = 0; i < b.elements(); ++i) {
    worst = std::max(worst, std::abs(a.at(i) - b.at(i)));
    largest = std::max(largest, std::abs(b.at(i)));
  }
  return worst / largest;
}

void show_times(const Workload& w, Index length) {
  const Inputs in(w, length, w.type);
  std::vector<double> forward[paths], backward[paths];
  for (int i = 0; i <= w.repeats; ++i) {
    for (const Path path : {fused, composed}) {
      const Pass pass = run(path, w, in);
      if (i == 0) continue;  // the pools grow
      forward[path].push_back(pass.forward), backward[path].push_back(pass.backward);
    }
  }
  double seconds[paths][2];
  for (const Path path : {fused, composed})
    seconds[path][0] = median(forward[path]), seconds[path][1] = median(backward[path]);
  const double flops[2] = {w.flops(length), 2.5 * w.flops(length)};
  for (const int pass : {0, 1}) {
    std::printf("%6lld %-9s %12.3f %12.3f %8.2f %12.1f %12.1f\n", static_cast<long long>(length),
                pass == 0 ? "forward" : "backward", 1e3 * seconds[fused][pass], 1e3 * seconds[composed][pass],
                seconds[composed][pass] / seconds[fused][pass], 1e-9 * flops[pass] / seconds[fused][pass],
                1e-9 * flops[pass] / seconds[composed][pass]);
  }
  std::fflush(stdout);
}

void show_errors(const Workload& w, Index length) {
  // Tests hold tiled f64 against plain loops; the composed one would take minutes and gigabytes here.
  const std::vector<Tensor> exact = run(fused, w, Inputs(w, length, DType::f64)).results;
  std::vector<double> errors[paths];
  for (const Path path : {fused, composed}) {
    const std::vector<Tensor> results = run(path, w, Inputs(w, length, DType::f32)).results;
    for (std::size_t i = 0; i < exact.size(); ++i) errors[path].push_back(error(results[i], exact[i]));
  }
  const char* const names[] = {"output", "dquery", "dkey", "dvalue", "dmodifier"};
  for (std::size_t i = 0; i < exact.size(); ++i) {
    std::printf("%6lld %-9s %12.2e %12.2e %8.2f\n", static_cast<long long>(length), names[i],
                errors[fused][i], errors[composed][i], errors[fused][i] / errors[composed][i]);
  }
  std::fflush(stdout);
}

/// Answers each line of input with a line: the medians of as many runs as half a second has room for.
int answer(const Workload& w, Index length) {
  wake_threads(fused, w);
  const Inputs in(w, length, w.type);
  const double added = added_memory(fused, w, in);
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<double> forward, backward;
    for (const double end = seconds() + 0.5; forward.empty() || seconds() < end;) {
      const Pass pass = run(fused, w, in);
      forward.push_back(pass.forward), backward.push_back(pass.backward);
    }
    std::printf("{\"forward_ms\": %.6g, \"backward_ms\": %.6g, \"mib\": %.1f}\n", 1e3 * median(forward),
                1e3 * median(backward), added);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int tapeformer::bench_attention(int argc, char** argv) {
  Workload w;
  std::vector<Index> lengths{512, 2048, 8192};
  bool in_double = false, without_errors = false, asks = false;
  const CommandLine line("Times tiled attention against attention in plain operations.");
  line.option("--lengths", lengths);
  line.option("--batch", w.batch);
  line.option("--heads", w.heads);
  line.option("--groups", w.groups, "key and value heads; as many as query heads when not given");
  line.option("--width", w.width);
  line.flag("--causal", w.causal);
  line.option("--dropout", w.dropout);
  line.option("--modifier", w.modifier, "of the scores");
  line.flag("--double", in_double);
  line.option("--repeats", w.repeats);
  line.flag("--no-errors", without_errors);
  line.flag("--processor-time", counts_processor_time);
  line.flag("--ask", asks, "time the first length at every line of input");
  if (!line.read(argc, argv)) return 0;
  if (w.groups == 0) w.groups = w.heads;
  if (in_double) w.type = DType::f64;
  if (asks) return answer(w, lengths.at(0));

  std::printf("B %lld, H %lld, G %lld, D %lld, %s, causal %d, dropout %g\n", static_cast<long long>(w.batch),
              static_cast<long long>(w.heads), static_cast<long long>(w.groups),
              static_cast<long long>(w.width), in_double ? "f64" : "f32", w.causal, w.dropout);
  // First of all, while this process has no threads yet that a fork would lose.
  std::printf("\nmemory beyond the inputs, forward and backward\n     T          tiled MiB composed MiB\n");
  for (const Index length : lengths) {
    const double tiled = peak_memory(fused, w, length), plain = peak_memory(composed, w, length);
    std::printf("%6lld %21.1f %12.1f\n", static_cast<long long>(length), tiled, plain);
    std::fflush(stdout);
  }
  std::printf("\na 2048-wide f32 matrix product runs at %.1f GFLOP/s\n", 1e-9 * gemm_rate(seconds));
  std::printf(
      "     T pass          tiled ms  composed ms    ratio tiled GFLOP/s composed GFLOP/s (medians of %d)\n",
      w.repeats);
  for (const Index length : lengths) show_times(w, length);
  if (without_errors) return 0;
  std::printf(
      "\nf32 against f64: max |difference| / max |value|\n     T                  tiled     composed    "
      "ratio\n");
  for (const Index length : lengths) show_errors(w, length);
  return 0;
}
