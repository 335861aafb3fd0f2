#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/nn/generation/generate_text.h>

#include <algorithm>
#include <limits>

namespace tapeformer {
namespace {

struct Sample {
  Index number;
  Generator random;
  RepetitionPenalty penalty;
};

void check(const DecoderOnlyConfig& model, const TokenIds& prompt, const TextGenerationConfig& config) {
  config.sampling.check();
  if (config.samples < 1 || config.max_tokens < 0)
    throw Error(format(
        "[generate_text] samples must be positive and max_tokens not negative; got samples={}, max_tokens={}",
        config.samples, config.max_tokens));
  // The last drawn token needs no position.
  const Index length = static_cast<Index>(prompt.size()), drawn = std::max<Index>(config.max_tokens - 1, 0),
              all = length + std::min(drawn, std::numeric_limits<Index>::max() - length);
  const Index positions = has_table(model.positions) ? std::min(all, model.context) : all;
  const auto require = [&](Index most, const char* rule) {
    if (most == 0 || positions <= most) return;
    throw ShapeError(format("[generate_text] {} {}; got a prompt of {} and max_tokens={}; try fewer", rule,
                            number_of(most, "token"), prompt.size(), config.max_tokens));
  };
  Index layer = 0;
  while (layer < model.layers && !model.rotates(layer)) ++layer;
  if (layer < model.layers)
    require(model.attention.rotations.max_positions, "the model's rotary positions are for");
  if (config.cache) require(config.cache->capacity, "the cache has room for");
}

}  // namespace

void generate_text(const DecoderOnly& model, const TokenIds& prompt, const TextGenerationConfig& config,
                   const OnToken& on_token) {
  check(model.config(), prompt, config);
  LanguageSteps steps(model, config.cache, config.graphs);
  const Tensor first = steps.prompt(prompt);
  RepetitionPenalty penalty(config.sampling.repetition_penalty);
  for (const std::int32_t token : prompt) penalty.see(token);
  std::vector<Sample> active;  // one per row
  for (Index i = 0; i < config.samples; ++i) {
    const Generator random(config.sampling.seed, config.sampling.stream + static_cast<std::uint64_t>(i));
    active.push_back({i, random, penalty});
  }
  std::vector<std::int32_t> rows(active.size(), 0);  // the former row of each of `active`
  steps.reorder(rows);
  Tensor logits = picked_rows(first, rows);
  for (Index drawn = 0; drawn < config.max_tokens; ++drawn) {
    TokenIds tokens;
    std::vector<Sample> still_active;
    rows.clear();
    const NextTokens likely =
        read_next_tokens(logits, penalty.changes() ? 0 : likeliest_needed(config.sampling));
    const Tensor wide = likely.values.to(DType::f64);
    double* const values = wide.data<double>();
    const Index count = likely.count();
    TokenIds next(active.size());
    kernels::parallel_ranges(likely.rows(), count, [&](Index from, Index to) {
      for (Index i = from; i < to; ++i) {
        Sample& sample = active[static_cast<std::size_t>(i)];
        double* const row = values + i * count;
        sample.penalty.apply(row);
        next[static_cast<std::size_t>(i)] =
            likely.token(i, sample_token(row, count, config.sampling, sample.random));
      }
    });
    for (std::size_t i = 0; i < active.size(); ++i) {
      Sample& sample = active[i];
      const std::int32_t token = next[i];
      const bool ends = std::find(config.ends.begin(), config.ends.end(), token) != config.ends.end();
      if (ends || !on_token(sample.number, token)) continue;
      sample.penalty.see(token);
      tokens.push_back(token);
      rows.push_back(static_cast<std::int32_t>(i));
      still_active.push_back(std::move(sample));
    }
    const bool all_go_on = still_active.size() == active.size();
    active = std::move(still_active);
    if (active.empty() || drawn + 1 == config.max_tokens) return;
    if (!all_go_on) steps.reorder(rows);
    logits = steps.step(tokens);
  }
}

}  // namespace tapeformer
