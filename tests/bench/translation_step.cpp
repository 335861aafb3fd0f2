// Where one training step of a translation model goes, and how near it is to the cost of its matrix products.
// Usage: translation_step [--width C] [--heads H] [--layers L] [--feed-forward F] [--vocabulary V]
//                         [--batch B] [--length T] [--dropout P] [--steps N]; defaults: the quickstart model
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/profile.h>
#include <tapeformer/autograd/tape.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/tests/bench/clock.h>
#include <tapeformer/tests/bench/gemm_rate.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>

using namespace tapeformer;

namespace {

struct Workload {
  Index width = 128, heads = 4, layers = 2, feed_forward = 256, vocabulary = 400, batch = 128, length = 12;
  double dropout = 0.0;
  int steps = 60;

  /// Multiplications and additions of a step's matrix products, three times the forward ones.
  double flops() const {
    const auto c = static_cast<double>(width), f = static_cast<double>(feed_forward),
               t = static_cast<double>(length);
    const auto tokens = static_cast<double>(batch * length);
    const double attention_scores = 4 * t * c;  // q k^T and weights v, per query
    const double encoder = 2 * (4 * c * c + 2 * c * f) + attention_scores;
    const double decoder = 2 * (8 * c * c + 2 * c * f) + 2 * attention_scores;
    return 3 * tokens *
           (static_cast<double>(layers) * (encoder + decoder) + 2 * c * static_cast<double>(vocabulary));
  }
};

}  // namespace

int main(int argc, char** argv) {
  Workload w;
  CLI::App app("Times one training step of an encoder-decoder and shows where it goes.");
  app.add_option("--width", w.width);
  app.add_option("--heads", w.heads);
  app.add_option("--layers", w.layers);
  app.add_option("--feed-forward", w.feed_forward);
  app.add_option("--vocabulary", w.vocabulary);
  app.add_option("--batch", w.batch);
  app.add_option("--length", w.length);
  app.add_option("--dropout", w.dropout);
  app.add_option("--steps", w.steps);
  CLI11_PARSE(app, argc, argv);

  EncoderDecoderConfig config;
  config.layer.width = w.width, config.layer.heads = w.heads, config.layer.feed_forward = w.feed_forward;
  config.layer.dropout = w.dropout;
  config.encoder_layers = config.decoder_layers = w.layers;
  config.source_vocabulary = config.target_vocabulary = w.vocabulary;
  Generator random(1);
  EncoderDecoder model(config, random);
  AdamW optimizer(model.parameters());
  const auto ids = [&] {
    const Tensor result = Tensor::empty({w.batch, w.length}, DType::i32);
    for (Index i = 0; i < result.elements(); ++i) {
      result.data<std::int32_t>()[i] = static_cast<std::int32_t>(random.below(w.vocabulary));
    }
    return result;
  };
  const Tensor source = ids(), target = ids(), expected = ids();
  const Tensor mask = Tensor::full({w.batch, w.length}, 1, DType::boolean);

  enum Phase { forward, backward, clip, update, whole, phases };
  std::vector<double> times[phases];
  const auto step = [&] {
    double marks[5] = {now()};
    optimizer.clear_gradients();
    Tape tape;
    const Tensor loss = cross_entropy(model(source, mask, target), expected);
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
  for (int i = 0; i < 5; ++i) step();
  for (auto& phase : times) phase.clear();
  const double rate_before = gemm_rate(now);
  for (int i = 0; i < w.steps; ++i) step();
  const double rate = std::max(rate_before, gemm_rate(now));

  const double seconds = median(times[whole]), floor = w.flops() / rate;
  std::printf("%lld parameters, batch %lld x %lld tokens a side, %d steps\n",
              static_cast<long long>(model.parameter_count()), static_cast<long long>(w.batch),
              static_cast<long long>(w.length), w.steps);
  std::printf(
      "step %.3f ms, %.0f tokens/s; forward %.3f, backward %.3f, clip %.3f, optimizer %.3f ms (medians)\n",
      1e3 * seconds, static_cast<double>(2 * w.batch * w.length) / seconds, 1e3 * median(times[forward]),
      1e3 * median(times[backward]), 1e3 * median(times[clip]), 1e3 * median(times[update]));
  std::printf("matrix products: %.1f MFLOP at %.0f GFLOP/s measured here = %.3f ms, %.1f %% of the step\n",
              1e-6 * w.flops(), 1e-9 * rate, 1e3 * floor, 100 * floor / seconds);

  const Profile profile;
  const double begun = now();
  for (int i = 0; i < w.steps; ++i) step();
  std::printf("by operation, over %d steps:\n%s", w.steps, profile.text(now() - begun).c_str());
  return 0;
}
