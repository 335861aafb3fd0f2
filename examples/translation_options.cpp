#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/translation_options.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <type_traits>

namespace tapeformer {
namespace {

/// Names every option once: f(group, name, field, help). Command line and JSON both follow from it.
template <class Options, class F>
void for_each_option(Options& o, const F& f) {
  f("Data", "pairs", o.pairs, "tab-separated pairs, source first; further columns are ignored");
  f("Data", "source", o.source, "source sentences, one a line (with --target)");
  f("Data", "target", o.target, "their translations, one a line (with --source)");
  f("Data", "swap", o.swap, "translate from the second column of --pairs to the first");
  f("Data", "grammar_pairs", o.grammar_pairs,
    "training pairs drawn from the built-in corpus when no file is given");
  f("Data", "max_words", o.max_words, "leave out pairs with more words on a side; 0 keeps all");
  f("Data", "held_out", o.held_out, "source sentences held out, half for validation, half for the test");
  f("Vocabulary", "tokenizer", o.tokenizer,
    "word, character, bpe or unigram; empty for word on the built-in corpus, bpe on files");
  f("Vocabulary", "vocabulary", o.vocabulary, "largest number of pieces");
  f("Vocabulary", "shared_vocabulary", o.shared_vocabulary,
    "one vocabulary and one embedding for both languages");
  f("Vocabulary", "source_model", o.source_model,
    "a SentencePiece model for the source, instead of training one");
  f("Vocabulary", "target_model", o.target_model, "a SentencePiece model for the target");
  f("Model", "width", o.width, "C, width of the states; a multiple of the heads");
  f("Model", "heads", o.heads, "H, attention heads");
  f("Model", "attention", o.attention,
    "mha (multi-head), gqa (grouped-query), mqa (multi-query), mla (latent) or additive");
  f("Model", "groups", o.groups, "G, heads of keys and values with gqa; 0 for half of the heads");
  f("Model", "latent_width", o.latent_width, "width of mla's compressed keys and values; 0 for C / 2");
  f("Model", "encoder_layers", o.encoder_layers, "layers of the encoder");
  f("Model", "decoder_layers", o.decoder_layers, "layers of the decoder");
  f("Model", "feed_forward", o.feed_forward, "F, hidden width of the feed-forward networks; 0 for 4 C");
  f("Model", "max_length", o.max_length, "longest sentence in tokens; longer pairs are left out");
  f("Model", "dropout", o.dropout, "share of activations dropped in training");
  f("Model", "activation", o.activation, "relu, gelu, gelu_tanh or silu");
  f("Model", "positions", o.positions,
    "sinusoidal or learned, added to the embeddings, or rotary, which attention turns by");
  f("Model", "post_norm", o.post_norm, "normalise after each residual sum, as the original did, not before");
  f("Model", "untied_head", o.untied_head, "give the output its own matrix, not the target embedding");
  f("Training", "steps", o.steps, "optimizer steps");
  f("Training", "batch_tokens", o.batch_tokens, "positions a batch, per side, padding included");
  f("Training", "accumulate", o.accumulate, "batches whose gradients make one step");
  f("Training", "learning_rate", o.learning_rate, "the highest learning rate");
  f("Training", "minimum_learning_rate", o.minimum_learning_rate, "where the cosine schedule ends");
  f("Training", "warmup", o.warmup, "steps over which the learning rate rises");
  f("Training", "schedule", o.schedule, "constant, inverse_square_root or cosine");
  f("Training", "weight_decay", o.weight_decay, "AdamW's decay of matrices");
  f("Training", "label_smoothing", o.label_smoothing, "probability spread over all pieces");
  f("Training", "clip", o.clip, "largest norm of all gradients together; 0 for no limit");
  f("Training", "beta1", o.beta1, "AdamW's decay of the first moment");
  f("Training", "beta2", o.beta2, "AdamW's decay of the second moment");
  f("Training", "seed", o.seed, "of initial weights, batches, dropout and the choice of held-out sentences");
  f("Training", "validate_every", o.validate_every, "steps between validations");
  f("Training", "patience", o.patience,
    "validations without a better loss before stopping; 0 never stops early");
  f("Training", "checkpoint_every", o.checkpoint_every, "steps between checkpoints; 0 for every validation");
  f("Training", "log_every", o.log_every, "steps between two lines of the log");
  f("Training", "samples", o.samples, "validation sentences shown translated at every validation");
}

std::string flag_of(const std::string& name) {
  std::string flag = "--" + name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

}  // namespace

void TranslationOptions::add_to(CLI::App& app) {
  for_each_option(*this, [&](const char* group, const char* name, auto& field, const char* help) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, bool>) {
      app.add_flag(flag_of(name), field, help)->group(group);
    } else {
      app.add_option(flag_of(name), field, help)->group(group)->capture_default_str()->take_last();
    }
  });
}

void TranslationOptions::make_paths_absolute() {
  for (std::string* path : {&pairs, &source, &target, &source_model, &target_model}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).string();
  }
}

TokenizerKind TranslationOptions::tokenizer_kind() const {
  if (tokenizer.empty()) return built_in() ? TokenizerKind::word : TokenizerKind::bpe;
  return tapeformer::tokenizer_kind(tokenizer);
}

EncoderDecoderConfig TranslationOptions::model_config(Index source_vocabulary,
                                                      Index target_vocabulary) const {
  EncoderDecoderConfig config;
  config.layer.width = width;
  config.layer.heads = heads;
  config.layer.attention = attention_kind(attention);
  config.layer.groups = groups;
  config.layer.latent_width = latent_width;
  config.layer.feed_forward = feed_forward;
  config.layer.dropout = dropout;
  config.layer.norm_first = !post_norm;
  config.layer.activation = activation_named(activation);
  config.source_vocabulary = source_vocabulary;
  config.target_vocabulary = target_vocabulary;
  config.encoder_layers = encoder_layers;
  config.decoder_layers = decoder_layers;
  config.positions = position_kind(positions);
  config.max_length = max_length;
  config.tie_target_head = !untied_head;
  config.tie_embeddings = shared_vocabulary;
  return config;
}

ScheduleConfig TranslationOptions::schedule_config() const {
  ScheduleConfig config;
  config.kind = schedule;
  config.learning_rate = learning_rate;
  config.warmup_steps = warmup;
  config.total_steps = steps;
  config.minimum = minimum_learning_rate;
  return config;
}

void TranslationOptions::check() const {
  const auto require = [](bool holds, const std::string& rule) {
    if (!holds) throw Error(rule);
  };
  require(source.empty() == target.empty(), "--source and --target go together");
  require(pairs.empty() || source.empty(), "--pairs and --source/--target exclude each other");
  require(!swap || !pairs.empty(), "--swap needs --pairs");
  require(held_out >= 2, "--held-out must be at least 2, for one validation and one test sentence; got " +
                             std::to_string(held_out));
  require(grammar_pairs > 0, "--grammar-pairs must be positive; got " + std::to_string(grammar_pairs));
  require(vocabulary > kSpecialTokens, "--vocabulary must be above " + std::to_string(kSpecialTokens) +
                                           "; got " + std::to_string(vocabulary));
  require(
      !shared_vocabulary || (source_model.empty() && target_model.empty()) || source_model == target_model,
      "--shared-vocabulary needs the same file as --source-model and --target-model");
  require(steps > 0 && batch_tokens > 0 && accumulate > 0 && validate_every > 0 && log_every > 0,
          "--steps, --batch-tokens, --accumulate, --validate-every and --log-every must be positive");
  require(learning_rate > 0, "--learning-rate must be positive; got " + std::to_string(learning_rate));
  require(label_smoothing >= 0 && label_smoothing < 1,
          "--label-smoothing must be in [0, 1); got " + std::to_string(label_smoothing));
  require(
      max_words >= 0 && patience >= 0 && clip >= 0 && warmup >= 0 && checkpoint_every >= 0 && samples >= 0,
      "--max-words, --patience, --clip, --warmup, --checkpoint-every and --samples must not be negative");
  require(
      positions != "rotary" || attention != "additive",
      "--positions rotary turns the vectors whose products are the scores; --attention additive has no such "
      "products; try --positions sinusoidal or learned");
  require(groups == 0 || attention == "gqa", "--groups needs --attention gqa");
  require(latent_width == 0 || attention == "mla", "--latent-width needs --attention mla");
  require(schedule != "cosine" || steps > warmup,
          "the cosine schedule needs more --steps than --warmup; got " + std::to_string(steps) + " and " +
              std::to_string(warmup));
  tokenizer_kind();
  model_config(vocabulary, vocabulary).check();  // whatever the sizes of the vocabularies will be
  Schedule{schedule_config()};
}

void to_json(nlohmann::ordered_json& json, const TranslationOptions& options) {
  for_each_option(options,
                  [&](const char*, const char* name, const auto& field, const char*) { json[name] = field; });
}

void from_json(const nlohmann::ordered_json& json, TranslationOptions& options) {
  // Runs from before there were other kinds of attention do not name them.
  const std::string later = " attention groups latent_width ";
  for_each_option(options, [&](const char*, const char* name, auto& field, const char*) {
    const bool may_be_missing = later.find(" " + std::string(name) + " ") != std::string::npos;
    if (!may_be_missing || json.contains(name)) json.at(name).get_to(field);
  });
}

}  // namespace tapeformer
