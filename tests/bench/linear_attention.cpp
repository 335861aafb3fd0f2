// Linear attention by chunks, beside the recurrence token by token in plain operations and tiled softmax
// attention: milliseconds of each pass, and operations beside what a matrix product reaches.
// Usage: bench linear_attention [--lengths T...] [--batch B] [--heads H] [--width D] [--repeats N]
//                               [--no-recurrence]
//                               [--processor-time]: with one thread, the time on a machine that others use
//        bench linear_attention --ask --lengths T: Gated DeltaNet's alone, timed anew at every line of input,
//                               answered by milliseconds of the forward pass and of both
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/linear_attention.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/tests/bench/bench.h>
#include <tapeformer/tests/bench/clock.h>
#include <tapeformer/tests/bench/gemm_rate.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

using namespace tapeformer;

namespace {

struct Sizes {
  Index batch = 1, heads = 8, width = 64;
  int repeats = 5;
};

struct Inputs {
  Inputs(const Sizes& n, Index length) {
    Generator random(7);
    const Shape tokens{n.batch, length, n.heads, n.width};
    query = Tensor::randn(tokens, random), key = Tensor::empty(tokens), value = Tensor::randn(tokens, random);
    random.fill_normal(key, 0, 1 / std::sqrt(static_cast<double>(n.width)));
    dy = Tensor::randn(tokens, random);
    beta = Tensor::rand({n.batch, length, n.heads}, random);
    decay = Tensor::empty(beta.shape()), channels = Tensor::empty(tokens);
    random.fill_uniform(decay, -0.1, 0);
    random.fill_uniform(channels, -0.1, 0);
  }
  Tensor query, key, value, dy, beta, decay, channels;
};

bool counts_processor_time = false;

double seconds() { return counts_processor_time ? processor_seconds() : now(); }

struct Times {
  double forward = 1e9, both = 1e9;  // seconds, the best of the repeats
};

using Attend = std::function<Tensor(const Inputs&)>;

Times timed(const Attend& attend, const Inputs& in, int repeats) {
  Times best;
  for (int i = 0; i < repeats; ++i) {
    Tape tape;
    const std::vector<Tensor> of = {in.query, in.key, in.value, in.beta, in.decay, in.channels};
    for (const Tensor& x : of) tape.watch(x);
    const double begun = seconds();
    const Tensor y = attend(in);
    const double forward = seconds() - begun;
    tape.gradients(y, of, in.dy);
    best.forward = std::min(best.forward, forward);
    best.both = std::min(best.both, seconds() - begun);
  }
  return best;
}

LinearAttentionOptions options_of(const Inputs& in, const std::string& kind) {
  LinearAttentionOptions options;
  if (kind != "gla") options.beta = in.beta;
  if (kind == "gated_deltanet") options.log_decay = in.decay;
  if (kind == "gla" || kind == "kda") options.log_decay = in.channels;
  return options;
}

Attend chunked(const std::string& kind) {
  return
      [kind](const Inputs& in) { return linear_attention(in.query, in.key, in.value, options_of(in, kind)); };
}

}  // namespace

int tapeformer::bench_linear_attention(int argc, char** argv) {
  Sizes n;
  std::vector<Index> lengths{512, 2048, 8192};
  bool no_recurrence = false, asks = false;
  const CommandLine line("Times linear attention beside softmax attention.");
  line.option("--lengths", lengths);
  line.option("--batch", n.batch);
  line.option("--heads", n.heads);
  line.option("--width", n.width);
  line.option("--repeats", n.repeats);
  line.flag("--no-recurrence", no_recurrence, "leave out the recurrence in plain operations");
  line.flag("--processor-time", counts_processor_time);
  line.flag("--ask", asks, "time the first length at every line of input");
  if (!line.read(argc, argv)) return 0;
  if (asks) {
    const Inputs in(n, lengths.at(0));
    for (std::string input; std::getline(std::cin, input);) {
      const Times times = timed(chunked("gated_deltanet"), in, n.repeats);
      std::printf("%.3f %.3f\n", times.forward * 1e3, times.both * 1e3);
      std::fflush(stdout);
    }
    return 0;
  }
  const double rate = gemm_rate(seconds);
  std::printf("B=%lld H=%lld D=E=%lld, f32; a matrix product reaches %.0f GFLOP/s\n",
              static_cast<long long>(n.batch), static_cast<long long>(n.heads),
              static_cast<long long>(n.width), rate / 1e9);
  std::printf("%6s %-20s %12s %12s %14s\n", "T", "", "forward ms", "both ms", "of the rate");
  for (const Index length : lengths) {
    const Inputs in(n, length);
    const double state = static_cast<double>(n.batch * n.heads * length * n.width * n.width);
    const auto print = [&](const std::string& name, const Times& times, double flops) {
      std::printf("%6lld %-20s %12.2f %12.2f %13.0f%%\n", static_cast<long long>(length), name.c_str(),
                  times.forward * 1e3, times.both * 1e3, 100 * flops / times.both / rate);
    };
    for (const char* kind : {"gla", "deltanet", "gated_deltanet", "kda"}) {
      const double products = std::string(kind) == "gla" ? 2 : 3;
      print(kind, timed(chunked(kind), in, n.repeats), 3 * 2 * products * state);
    }
    const Attend recurrence = [](const Inputs& x) {
      return composed_linear_attention(x.query, x.key, x.value, options_of(x, "gated_deltanet"));
    };
    if (!no_recurrence && length <= 2048) print("token by token", timed(recurrence, in, 1), 18 * state);
    const Attend softmax = [](const Inputs& x) {
      AttentionOptions options;
      options.causal = true;
      return scaled_dot_product_attention(x.query, x.key, x.value, options);
    };
    print(
        "softmax, causal", timed(softmax, in, n.repeats),
        7 * 2 * static_cast<double>(n.batch * n.heads * n.width) * static_cast<double>(length * length) / 2);
  }
  return 0;
}
