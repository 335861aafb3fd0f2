#include <tapeformer/examples/translation/options.h>

namespace tapeformer {

/// The architecture and the optimizer that learn short sentences in the fewest steps.
constexpr const char* kRecipe = R"({
  "positions": "rotary", "norm": "rms", "qk_norm": "rms", "activation": "relu_squared",
  "optimizer": "muon", "learning_rate": 0.02, "minimum_learning_rate": 1e-5, "adam_rate": 0.7})";

/// Options that the recipes for pairs of short sentences add to kRecipe.
constexpr const char* kPairs = R"({
  "shared_vocabulary": true, "vocabulary": 4000,
  "encoder_layers": 3, "decoder_layers": 3, "heads": 4,
  "weight_decay": 0.1, "warmup": 200})";

const std::vector<Preset>& translation_presets() {
  static const std::vector<Preset> presets = {
      {"built-in",
       "the built-in corpus: 2 layers per side, 4 heads, width 128, 2500 steps: minutes on two cores",
       {}},
      {"quickstart",
       "the built-in corpus in a minute on two cores: the same with rotary positions, Muon, dropout 0.05, "
       "450 steps",
       {kRecipe, R"({"dropout": 0.05, "steps": 450, "warmup": 40, "validate_every": 100})"}},
      {"translation-tiny",
       "up to 200,000 pairs: 3 layers per side, 4 heads, width 128, dropout 0.05, Muon; as many steps as 10 "
       "minutes allow",
       {kRecipe, kPairs, R"({
         "width": 128, "feed_forward": 512, "dropout": 0.05, "label_smoothing": 0.2,
         "time_budget": 10, "steps": 3000, "validate_every": 500})"},
       {{12000, R"({"dropout": 0.2, "vocabulary": 2000})"}}},
      // See tests/bench/LOG.md for what was tried.
      {"translation-small",
       "up to 200,000 pairs: 3 layers per side, 4 heads, width 192, dropout 0.1, Muon; as many steps as 30 "
       "minutes allow",
       {kRecipe, kPairs, R"({
         "width": 192, "feed_forward": 768, "dropout": 0.1,
         "time_budget": 30, "steps": 4300, "validate_every": 1000})"},
       {{12000, R"({"dropout": 0.25, "label_smoothing": 0.2, "vocabulary": 2000})"}}},
      {"translation-marian",
       "the built-in corpus with a model that `export` writes for transformers: 2 layers per side, 4 heads, "
       "width 128, 2500 steps",
       {R"({"tokenizer": "marian", "vocabulary": 2000, "shared_vocabulary": true, "post_norm": true,
           "positions": "sinusoidal_halves", "activation": "silu"})"}},
  };
  return presets;
}

}  // namespace tapeformer
