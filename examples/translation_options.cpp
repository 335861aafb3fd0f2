#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/option_table.h>
#include <tapeformer/examples/translation_options.h>

#include <filesystem>

namespace tapeformer {

template <class Self, class F>
void TranslationOptions::for_each(Self& o, const F& f) {
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
  for (std::string* path : {&pairs, &source, &target, &source_model, &target_model, &from}) {
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

void to_json(nlohmann::ordered_json& json, const TranslationOptions& options) {
  write_options(json, options);
}

void from_json(const nlohmann::ordered_json& json, TranslationOptions& options) {
  read_options(json, options,
               {"attention", "groups", "latent_width", "keep_checkpoints", "recompute_layers", "from"});
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
