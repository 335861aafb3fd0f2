#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/language/options.h>
#include <tapeformer/examples/language/presets.h>

#include <string_view>

namespace tapeformer {
namespace {

/// Sets what nanoGPT's two recipes for characters have in common.
void character_recipe(LanguageOptions& o) {
  o.data.tokenizer = "character";
  TrainingOptions& t = o.training;
  t.learning_rate = 1e-3, t.minimum_learning_rate = 1e-4;
  t.schedule = "cosine", t.warmup = 100;
  t.optimizer = {"adamw", {{"beta1", 0.9}, {"beta2", 0.99}, {"weight_decay", 0.1}}}, t.clip = 1;
  t.validate_every = 250, t.log_every = 50, t.samples = 1;
}

void shakespeare_char_cpu(LanguageOptions& o) {
  character_recipe(o);
  o.model.layers = 4, o.model.attention.heads = 4, o.model.width = 128, o.model.context = 64;
  o.batch = 12, o.training.steps = 2000, o.validation_batches = 20;
  o.training.validate_every = 500;  // nanoGPT's 250 would halve the batches that little time is enough for
}

/// The best model that we know for three minutes on two cores: rotary positions, RMS norm, SwiGLU, higher
/// learning rates, more steps, longer windows.
void shakespeare_char_3_minutes(LanguageOptions& o) {
  character_recipe(o);
  o.model.layers = 4, o.model.attention.heads = 4, o.model.width = 128, o.model.context = 128;
  o.model.positions = PositionKind::rotary, o.model.norm = NormKind::rms;
  set_feed_forward_kind(o.model, "swiglu");
  o.batch = 8, o.validation_batches = 20;
  TrainingOptions& t = o.training;
  t.steps = 4800, t.learning_rate = 5e-3, t.minimum_learning_rate = 1e-5, t.warmup = 240;
  t.validate_every = 1200;
}

void shakespeare_char(LanguageOptions& o) {
  character_recipe(o);
  o.model.layers = 6, o.model.attention.heads = 6, o.model.width = 384, o.model.context = 256;
  set_dropout(o.model, 0.2);
  o.batch = 64, o.training.steps = 5000, o.validation_batches = 200;
}

/// nanoGPT's GPT-2 takes 491,520 tokens a step on eight GPUs. Here a step has a twelfth of that, the rates
/// are divided by two, and the steps are as many as make 20 tokens a parameter (Hoffmann et al. 2022).
void gpt2_124m(LanguageOptions& o) {
  o.data.tokenizer = "bpe", o.data.vocabulary = 50257;
  o.model.layers = 12, o.model.attention.heads = 12, o.model.width = 768, o.model.context = 1024;
  set_feed_forward_kind(o.model, "gelu_tanh");
  set_bias(o.model, true);
  o.batch = 4, o.fused_head = true, o.validation_batches = 50, o.validation_kind = "estimate";
  TrainingOptions& t = o.training;
  t.accumulate = 10, t.steps = 60000;
  t.learning_rate = 3e-4, t.minimum_learning_rate = 3e-5;
  t.schedule = "cosine", t.warmup = 700;
  t.optimizer = {"adamw", {{"beta1", 0.9}, {"beta2", 0.95}, {"weight_decay", 0.1}}}, t.clip = 1;
  t.validate_every = 500, t.checkpoint_every = 100, t.log_every = 10, t.samples = 1;
}

/// llama2.c's smallest model, with an eighth of its batch.
void stories_260k(LanguageOptions& o) {
  o.data.tokenizer = "sentencepiece", o.data.vocabulary = 512;
  o.model.layers = 5, o.model.width = 64, o.model.context = 512, o.model.feed_forward = 172;
  o.model.attention.kind = "gqa", o.model.attention.heads = 8, o.model.attention.groups = 4;
  o.model.positions = PositionKind::rotary, o.model.norm = NormKind::rms;
  set_feed_forward_kind(o.model, "swiglu");
  o.batch = 16, o.validation_batches = 20;
  TrainingOptions& t = o.training;
  t.steps = 5000;
  t.learning_rate = 1e-3, t.minimum_learning_rate = 1e-4;
  t.schedule = "cosine", t.warmup = 200;
  t.optimizer = {"adamw", {{"beta1", 0.9}, {"beta2", 0.99}, {"weight_decay", 0.01}}}, t.clip = 1;
  t.validate_every = 250, t.log_every = 25, t.samples = 1;
}

}  // namespace

const std::vector<LanguagePreset>& language_presets() {
  static const std::vector<LanguagePreset> presets = {
      {"shakespeare-char-cpu",
       "characters; 4 layers, 4 heads, width 128, context 64, batch 12, 2000 steps: minutes on two cores",
       shakespeare_char_cpu},
      {"shakespeare-char-3-minutes",
       "characters; 4 layers, 4 heads, width 128, context 128, rotary, rms, swiglu, batch 8, 4800 steps: a "
       "better model for three minutes on two cores",
       shakespeare_char_3_minutes},
      {"shakespeare-char",
       "characters; 6 layers, 6 heads, width 384, context 256, batch 64, 5000 steps, dropout 0.2: hours",
       shakespeare_char},
      {"gpt2-124m",
       "GPT-2's smallest: bpe of 50257, 12 layers, 12 heads, width 768, context 1024, biases, fused head, "
       "batch 4 x 10, 60000 steps: weeks on a CPU",
       gpt2_124m},
      {"stories-260k",
       "a small Llama: sentencepiece of 512, 5 layers, 8 heads on 4 of keys and values, width 64, context "
       "512, rotary, rms, swiglu of 172, batch 16, 5000 steps",
       stories_260k},
  };
  return presets;
}

const LanguagePreset& language_preset(const std::string& name) {
  std::string names;
  for (const LanguagePreset& preset : language_presets()) {
    if (preset.name == name) return preset;
    names += (names.empty() ? "" : ", ") + std::string(preset.name);
  }
  throw Error("--preset must be one of " + names + "; got " + name);
}

std::string preset_named_in(int argc, const char* const* argv) {
  constexpr std::string_view kFlag = "--preset";
  std::string found;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == kFlag && i + 1 < argc) {
      found = argv[i + 1];
    } else if (argument.substr(0, kFlag.size() + 1) == std::string(kFlag) + "=") {
      found = argument.substr(kFlag.size() + 1);
    }
  }
  return found;
}

std::string presets_text() {
  std::string text = "Presets set the defaults; every option overrides its own:";
  for (const LanguagePreset& preset : language_presets())
    text += std::string("\n  ") + preset.name + ": " + preset.about;
  return text;
}

}  // namespace tapeformer
