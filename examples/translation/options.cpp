#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/examples/translation/options.h>

#include <algorithm>
#include <filesystem>

namespace tapeformer {
namespace {

void require(bool holds, const std::string& rule) {
  if (!holds) throw Error(rule);
}

}  // namespace

template <class Self, class F>
void TranslationOptions::for_each(Self& o, const F& f) {
  f("Data", "pairs", o.text.pairs, "tab-separated pairs, source first; further columns are ignored");
  f("Data", "source", o.text.source, "source sentences, one a line (with --target)");
  f("Data", "target", o.text.target, "their translations, one a line (with --source)");
  f("Data", "validation_pairs", o.validation.pairs,
    "validate on these tab-separated pairs; nothing is held out of the training text then");
  f("Data", "validation_source", o.validation.source, "the same as two files (with --validation-target)");
  f("Data", "validation_target", o.validation.target, "their translations (with --validation-source)");
  f("Data", "test_pairs", o.test.pairs, "what `evaluate` measures, beside validation files of your own");
  f("Data", "test_source", o.test.source, "the same as two files (with --test-target)");
  f("Data", "test_target", o.test.target, "their translations (with --test-source)");
  f("Data", "swap", o.swap, "translate from the second column of tab-separated files to the first");
  f("Data", "grammar_pairs", o.grammar_pairs,
    "training pairs drawn from the built-in corpus when no file is given");
  f("Data", "max_words", o.max_words,
    "leave out pairs of --pairs, or --source and --target, with more words on a side; 0 keeps all");
  f("Data", "held_out", o.held_out,
    "source sentences held out, half for validation, half for the test; 0 for 2000, or a tenth where that is "
    "less");
  f("Vocabulary", "tokenizer", o.tokenizer,
    "word, character, bpe or unigram; empty for word on the built-in corpus, bpe on files");
  f("Vocabulary", "vocabulary", o.vocabulary, "largest number of pieces");
  f("Vocabulary", "shared_vocabulary", o.shared_vocabulary,
    "one vocabulary and one embedding for both languages");
  f("Vocabulary", "source_model", o.source_model,
    "a SentencePiece model for the source, instead of training one");
  f("Vocabulary", "target_model", o.target_model, "a SentencePiece model for the target");
  f("Model", "from", o.from,
    "fine-tune: start from the weights in this run, with its sizes and vocabularies; the schedule begins "
    "anew");
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
  TrainingOptions::for_each(o.training, f);
  f("Training", "batch_tokens", o.batch_tokens, "positions a batch, per side, padding included");
  f("Training", "label_smoothing", o.label_smoothing, "probability spread over all pieces");
}

void TranslationOptions::add_to(const Command& command) { add_options(command, *this); }

void TranslationOptions::make_paths_absolute() {
  const auto make_absolute = [](std::string& path) {
    if (!path.empty()) path = std::filesystem::absolute(path).string();
  };
  for (PairFiles* files : {&text, &validation, &test})
    for (std::string* path : {&files->pairs, &files->source, &files->target}) make_absolute(*path);
  for (std::string* path : {&source_model, &target_model, &from}) make_absolute(*path);
}

Index TranslationOptions::sentences_held_out(Index of) const {
  return held_out > 0 ? held_out : std::min(kMostUnaskedHeldOut, std::max<Index>(2, of / 10));
}

TokenizerKind TranslationOptions::tokenizer_kind() const {
  if (tokenizer.empty()) return built_in() ? TokenizerKind::word : TokenizerKind::bpe;
  return tapeformer::tokenizer_kind(tokenizer);
}

EncoderDecoderConfig TranslationOptions::model_config(Index source_vocabulary,
                                                      Index target_vocabulary) const {
  EncoderDecoderConfig config;
  config.layer.width = width;
  config.layer.attention.heads = heads;
  config.layer.attention.kind = attention;
  config.layer.attention.groups = groups;
  config.layer.attention.latent_width = latent_width;
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

void PairFiles::check(const std::string& prefix) const {
  const std::string one = "--" + prefix + "pairs", two = "--" + prefix + "source and --" + prefix + "target";
  require(source.empty() == target.empty(), two + " go together");
  require(pairs.empty() || source.empty(), one + " excludes " + two);
}

std::vector<TextPair> PairFiles::read(bool swap) const {
  return pairs.empty() ? read_line_aligned(source, target) : read_tab_separated(pairs, swap);
}

void TranslationOptions::check() const {
  text.check();
  validation.check("validation-");
  test.check("test-");
  bool tabbed = false;
  for (const PairFiles* files : {&text, &validation, &test}) {
    tabbed = tabbed || !files->pairs.empty();
    for (const std::string* path : {&files->pairs, &files->source, &files->target})
      require(
          *path != kStandardInput,
          "a training reads its text again when it resumes, and standard input (-) can be read once; name "
          "a file");
  }
  require(!swap || tabbed, "--swap needs --pairs");
  require(validation.empty() || !built_in(),
          "validation files of your own need a text of your own: --pairs, or --source and --target");
  require(test.empty() || !validation.empty(),
          "test files need validation files: --validation-pairs, or --validation-source and "
          "--validation-target; or leave them to `evaluate --pairs`");
  require(
      held_out == 0 || held_out >= 2,
      "--held-out must be at least 2, for one validation and one test sentence, or 0 for the default; got " +
          std::to_string(held_out));
  require(grammar_pairs > 0, "--grammar-pairs must be positive; got " + std::to_string(grammar_pairs));
  require(vocabulary > kSpecialTokens, "--vocabulary must be above " + std::to_string(kSpecialTokens) +
                                           "; got " + std::to_string(vocabulary));
  require(
      !shared_vocabulary || (source_model.empty() && target_model.empty()) || source_model == target_model,
      "--shared-vocabulary needs the same file as --source-model and --target-model");
  require(batch_tokens > 0, "--batch-tokens must be positive; got " + std::to_string(batch_tokens));
  require(label_smoothing >= 0 && label_smoothing < 1,
          "--label-smoothing must be in [0, 1); got " + std::to_string(label_smoothing));
  require(max_words >= 0, "--max-words must not be negative; got " + std::to_string(max_words));
  require(
      positions != "rotary" || attention != "additive",
      "--positions rotary turns the vectors whose products are the scores; --attention additive has no such "
      "products; try --positions sinusoidal or learned");
  require(groups == 0 || attention == "gqa", "--groups needs --attention gqa");
  require(latent_width == 0 || attention == "mla", "--latent-width needs --attention mla");
  training.check();
  tokenizer_kind();
  model_config(vocabulary, vocabulary).check();  // whatever the sizes of the vocabularies will be
}

void TranslationOptions::refuse_ignored(const Command& command) const {
  if (built_in()) {
    command.refuse({"--max-words"}, "on the built-in corpus");
  } else {
    command.refuse({"--grammar-pairs"}, "with a text of your own");
  }
  if (!validation.empty())
    command.refuse({"--held-out"}, "with validation files, beside which nothing is held out");
  if (!source_model.empty() && (shared_vocabulary || !target_model.empty()))
    command.refuse({"--tokenizer", "--vocabulary"}, "with SentencePiece models");
  training.refuse_ignored(command);
}

void to_json(nlohmann::ordered_json& json, const TranslationOptions& options) {
  write_options(json, options);
}

void from_json(const nlohmann::ordered_json& json, TranslationOptions& options) {
  read_options(json, options,
               {"attention", "groups", "latent_width", "keep_checkpoints", "recompute_layers", "from",
                "validation_pairs", "validation_source", "validation_target", "test_pairs", "test_source",
                "test_target"});
}

void take_fine_tuned(TranslationOptions& options, const TranslationOptions& trained, const Command& command) {
  const nlohmann::ordered_json has = trained;
  TranslationOptions::for_each(options, [&](const char* group, const char* name, auto& field, const char*) {
    const std::string kind = group, option = name;
    if ((kind != "Vocabulary" && kind != "Model") || option == "from" || option == "dropout") return;
    const nlohmann::ordered_json asked = field;
    if (command.find(flag_of(option)).given() && asked != has.at(option)) {
      throw Error(flag_of(option) + " " + asked.dump() + " contradicts --from " + options.from +
                  ", which has " + has.at(option).dump());
    }
    has.at(option).get_to(field);
  });
}

}  // namespace tapeformer
