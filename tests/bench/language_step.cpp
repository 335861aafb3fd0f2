// One training step of a language model: time, tokens a second, nearness to the cost of its matrix products,
// memory.
// Usage: bench_language_step [--shape babygpt|chargpt|gpt2-124m|stories-260k] [--batch B] [--length T]
//                            [--attention KIND] [--dropout P] [--fused-head] [--chunk ROWS] [--steps N]
//                            [--profile]
#include <tapeformer/autograd/profile.h>
#include <tapeformer/autograd/storage.h>
#include <tapeformer/autograd/tape.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/tests/bench/clock.h>
#include <tapeformer/tests/bench/gemm_rate.h>

#include <CLI/CLI.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>

using namespace tapeformer;

namespace {

double mib(double bytes) { return bytes / (1024.0 * 1024.0); }

/// Of the process, since it began.
double peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

struct Workload {
  DecoderOnlyConfig model;
  Index batch = 0, length = 0;
};

Workload workload_of(const std::string& shape) {
  Workload w;
  DecoderOnlyConfig& c = w.model;
  c.activation = Unary::gelu;
  if (shape == "gpt2-124m") {
    c.vocabulary = 50257, c.context = 1024, c.layers = 12, c.heads = 12, c.width = 768;
    c.activation = Unary::gelu_tanh;
    w.batch = 4, w.length = 64;
    return w;
  }
  c.attention_bias = c.norm_bias = c.feed_forward_bias = false;
  if (shape == "stories-260k") {
    c.vocabulary = 512, c.context = 512, c.layers = 5, c.width = 64, c.feed_forward = 172;
    c.attention = AttentionKind::grouped_query, c.heads = 8, c.groups = 4;
    c.norm = NormKind::rms, c.positions = PositionKind::rotary, c.activation = Unary::silu, c.gated = true;
    w.batch = 16, w.length = 256;
    return w;
  }
  c.vocabulary = 65;
  if (shape == "chargpt") {
    c.layers = 6, c.heads = 6, c.width = 384, c.context = 256;
    w.batch = 64, w.length = 256;
  } else {
    c.layers = 4, c.heads = 4, c.width = 128, c.context = 64;
    w.batch = 12, w.length = 64;
  }
  return w;
}

}  // namespace

int main(int argc, char** argv) {
  std::string shape = "babygpt", attention;
  Index batch = 0, length = 0;
  int steps = 30;
  double dropout = 0;
  HeadLossConfig head;
  bool profiles = false;
  CLI::App app("Times one training step of a language model.");
  app.add_option("--shape", shape)->check(CLI::IsMember({"babygpt", "chargpt", "gpt2-124m", "stories-260k"}));
  app.add_option("--batch", batch, "rows; the shape's own unless given");
  app.add_option("--length", length, "tokens a row; the shape's own unless given");
  app.add_option("--attention", attention, "mha, gqa, mqa or mla; the shape's own unless given");
  app.add_option("--dropout", dropout);
  app.add_flag("--fused-head", head.fused, "the loss in chunks, without logits");
  app.add_option("--chunk", head.chunk, "rows at a time of the fused loss");
  app.add_option("--steps", steps)->check(CLI::PositiveNumber);
  app.add_flag("--profile", profiles, "show where the time goes");
  CLI11_PARSE(app, argc, argv);

  Workload w = workload_of(shape);
  if (batch > 0) w.batch = batch;
  if (length > 0) w.length = length;
  w.model.context = std::max(w.model.context, w.length);
  if (!attention.empty()) w.model.attention = attention_kind(attention), w.model.groups = 0;
  w.model.embedding_dropout = w.model.residual_dropout = w.model.attention_dropout = dropout;
  Generator random(1);
  DecoderOnly model(w.model, random);
  AdamW optimizer(model.parameters());
  const auto draw = [&] {
    const Tensor ids = Tensor::empty({w.batch, w.length}, DType::i32);
    for (Index i = 0; i < ids.elements(); ++i)
      ids.data<std::int32_t>()[i] = static_cast<std::int32_t>(random.below(w.model.vocabulary));
    return ids;
  };
  const Tensor ids = draw(), targets = draw();

  enum Phase { forward, backward, clip, update, whole, phases };
  std::vector<double> times[phases];
  const auto step = [&] {
    double marks[5] = {now()};
    optimizer.clear_gradients();
    Tape tape;
    const Tensor loss = model.loss(ids, targets, {}, head);
    marks[1] = now();
    tape.backward(loss);
    marks[2] = now();
    clip_gradient_norm(optimizer.parameters(), 1.0);
    marks[3] = now();
    optimizer.step(1e-3);
    marks[4] = now();
    for (int phase = forward; phase <= update; ++phase)
      times[phase].push_back(marks[phase + 1] - marks[phase]);
    times[whole].push_back(marks[4] - marks[0]);
  };
  for (int i = 0; i < std::min(3, steps); ++i) step();
  const double peak_pool = static_cast<double>(pool_statistics().peak_bytes),
               peak_resident = peak_resident_bytes();
  for (auto& phase : times) phase.clear();
  const double rate_before = gemm_rate(now);
  for (int i = 0; i < steps; ++i) step();
  const double rate = std::max(rate_before, gemm_rate(now)), seconds = median(times[whole]);

  const Profile profile;
  const double begun = now();
  step();
  const double profiled = now() - begun;
  const double flops = static_cast<double>(profile.flops(false) + profile.flops(true));
  std::printf("%s, %s: %lld parameters, batch %lld x %lld tokens, %s head, %d steps\n", shape.c_str(),
              name_of(w.model.attention), static_cast<long long>(model.parameter_count()),
              static_cast<long long>(w.batch), static_cast<long long>(w.length),
              head.fused ? "fused" : "plain", steps);
  std::printf(
      "step %.3f ms, %.0f tokens/s; forward %.3f, backward %.3f, clip %.3f, optimizer %.3f ms (medians)\n",
      1e3 * seconds, static_cast<double>(w.batch * w.length) / seconds, 1e3 * median(times[forward]),
      1e3 * median(times[backward]), 1e3 * median(times[clip]), 1e3 * median(times[update]));
  std::printf("products: %.1f MFLOP at %.0f GFLOP/s measured here = %.3f ms, %.1f %% of the step\n",
              1e-6 * flops, 1e-9 * rate, 1e3 * flops / rate, 100 * flops / rate / seconds);
  std::printf("peak memory: %.1f MiB handed out by the pool, %.1f MiB resident\n", mib(peak_pool),
              mib(peak_resident));
  if (profiles) std::printf("by operation:\n%s", profile.text(profiled).c_str());
  return 0;
}
