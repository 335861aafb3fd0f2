#include <tapeformer/examples/translation/presets.h>

namespace tapeformer {

const std::vector<Preset>& translation_presets() {
  static const std::vector<Preset> presets = {
      {"built-in",
       "the built-in corpus: 2 layers a side, 4 heads, width 128, 2500 steps: a minute on two cores",
       {}},
      {"translation-tiny",
       "about 30,000 pairs: bpe of 4000, shared; 3 layers a side, 4 heads, width 128, dropout 0.2; 10 "
       "minutes",
       {R"({
         "shared_vocabulary": true, "vocabulary": 4000,
         "encoder_layers": 3, "decoder_layers": 3, "heads": 4, "width": 128, "feed_forward": 512,
         "dropout": 0.2,
         "time_budget": 10, "steps": 6000, "learning_rate": 2e-3, "warmup": 400, "validate_every": 1000})"}},
      {"translation-small",
       "up to 200,000 pairs: bpe of 8000, shared; 3 layers a side, 8 heads, width 256, dropout 0.1; 30 "
       "minutes",
       {R"({
         "shared_vocabulary": true, "vocabulary": 8000,
         "encoder_layers": 3, "decoder_layers": 3, "heads": 8, "width": 256, "feed_forward": 512,
         "dropout": 0.1,
         "time_budget": 30, "steps": 4000, "learning_rate": 1.5e-3, "warmup": 400, "validate_every": 500})"}},
  };
  return presets;
}

}  // namespace tapeformer
