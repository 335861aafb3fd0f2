// The price of an optimizer's update, and its share of a training step: measured, and for Muon's products
// estimated too.
// Usage: bench optimizer_step [--models NAME...] [--optimizers NAME...] [--repeats N] [--processor-time]
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/optim/muon_adamw.h>
#include <tapeformer/optim/optimizers.h>
#include <tapeformer/tests/bench/bench.h>
#include <tapeformer/tests/bench/clock.h>

#include <algorithm>
#include <cstdio>

using namespace tapeformer;

namespace {

struct Size {
  const char* name;
  Index layers, heads, width, vocabulary, context;
  std::vector<Index> tokens;  // of a step, for the estimates
};

std::vector<Size> all_sizes() {
  return {{"character", 4, 4, 128, 65, 64, {768, 8192}},
          {"30m", 8, 8, 512, 8192, 256, {4096, 16384}},
          {"gpt2-124m", 12, 12, 768, 50257, 1024, {4096, 65536}}};
}

DecoderOnly model_of(const Size& size, Generator& random) {
  DecoderOnlyConfig config;
  config.layers = size.layers, config.attention.heads = size.heads, config.width = size.width;
  config.vocabulary = size.vocabulary, config.context = size.context;
  return DecoderOnly(config, random);
}

/// Operations of five Newton-Schulz steps, as published, on all hidden matrices.
double newton_schulz_flops(DecoderOnly& model) {
  const RowParts parts = model.row_parts();
  double sum = 0;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!is_hidden_matrix(parameter)) continue;
    const auto found = parts.find(name);
    const std::vector<Index> rows =
        found == parts.end() ? std::vector<Index>{parameter.value().size(0)} : found->second;
    for (const Index count : rows) {
      const auto side = static_cast<double>(std::min(count, parameter.value().size(1))),
                 longer = static_cast<double>(std::max(count, parameter.value().size(1)));
      sum += 5 * (4 * side * side * longer + 2 * side * side * side);
    }
  }
  return sum;
}

void measure(const Size& size, const std::string& kind, int repeats, bool counts_processor_time) {
  Generator random(3);
  DecoderOnly model = model_of(size, random);
  const std::vector<Parameter> parameters = model.parameters();
  for (const Parameter& parameter : parameters) {
    parameter.state()->gradient = Tensor::randn(parameter.value().shape(), random);
    parameter.state()->has_gradient = true;
  }
  OptimizerConfig config;
  config.set_kind(kind);
  const std::unique_ptr<Optimizer> optimizer = config.make(parameters, model.row_parts());
  std::vector<double> seconds;
  for (int repeat = -1; repeat < repeats; ++repeat) {
    const double begun = counts_processor_time ? processor_seconds() : now();
    optimizer->clipped_step(1e-6, 1, 1);
    if (repeat >= 0) seconds.push_back((counts_processor_time ? processor_seconds() : now()) - begun);
  }
  std::printf("%-10s %-10s %9.2f ms (least %.2f)", size.name, kind.c_str(), 1e3 * median(seconds),
              1e3 * *std::min_element(seconds.begin(), seconds.end()));
  if (kind == "muon") {
    const double products = newton_schulz_flops(model);
    std::printf("; Newton-Schulz steps are %.3g GFLOP", products / 1e9);
    for (const Index tokens : size.tokens) {
      const double passes = 6 * static_cast<double>(model.parameter_count()) * static_cast<double>(tokens);
      std::printf(", %.1f %% of the passes of %lld tokens", 100 * products / passes,
                  static_cast<long long>(tokens));
    }
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int tapeformer::bench_optimizer_step(int argc, char** argv) {
  const CommandLine line("the price of an optimizer's update");
  std::vector<std::string> models{"character", "30m"}, optimizers{"adamw", "muon"};
  int repeats = 9;
  bool counts_processor_time = false;
  line.option("--models", models, "character, 30m, gpt2-124m");
  line.option("--optimizers", optimizers);
  line.option("--repeats", repeats);
  line.flag("--processor-time", counts_processor_time,
            "the time of all threads together, on a machine that others use too");
  if (!line.read(argc, argv)) return 0;
  for (const Size& size : all_sizes()) {
    if (std::find(models.begin(), models.end(), size.name) == models.end()) continue;
    for (const std::string& kind : optimizers) measure(size, kind, repeats, counts_processor_time);
  }
  return 0;
}
