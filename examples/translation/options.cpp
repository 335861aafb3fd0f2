#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/text/json.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/examples/shared/summary.h>
#include <tapeformer/examples/translation/options.h>
#include <tapeformer/examples/translation/presets.h>

#include <algorithm>

namespace tapeformer {
template <class Self, class F>
void TranslationOptions::for_each(Self& o, const F& f) {
  const auto data = f.in_group("Data"), vocabulary = f.in_group("Vocabulary"), model = f.in_group("Model"),
             training = f.in_group("Training");
  f.in_group("Preset")("preset", o.preset, "where the defaults below come from; see the end of this text");
  data.path("pairs", o.text.pairs, "tab-separated pairs, source first; further columns are ignored");
  data.path("source", o.text.source, "source sentences, one a line (with --target)");
  data.path("target", o.text.target, "their translations, one a line (with --source)");
  data.path("validation_pairs", o.validation.pairs,
            "validate on these tab-separated pairs; nothing is held out of the training text then");
  data.path("validation_source", o.validation.source, "the same as two files (with --validation-target)");
  data.path("validation_target", o.validation.target, "their translations (with --validation-source)");
  data.path("test_pairs", o.test.pairs,
            "the pairs that `evaluate` measures, beside validation files of your own");
  data.path("test_source", o.test.source, "the same as two files (with --test-target)");
  data.path("test_target", o.test.target, "their translations (with --test-source)");
  data("swap", o.swap, "translate from the second column of tab-separated files to the first");
  data("grammar_pairs", o.grammar_pairs,
       "training pairs drawn from the built-in corpus when no file is given", kPositive);
  data("max_words", o.max_words,
       "leave out pairs of --pairs, or --source and --target, with more words on a side; 0 keeps all",
       kNotNegative);
  data("held_out", o.held_out,
       "source sentences held out, half for validation, half for the test; 0 for 2000, or a tenth where that "
       "is less");
  vocabulary("tokenizer", o.tokenizer,
             "word, space (for text that is cut already), character, bpe or unigram; empty for word on the "
             "built-in corpus, bpe on files");
  vocabulary("vocabulary", o.vocabulary, "largest number of pieces");
  vocabulary("shared_vocabulary", o.model.tie_embeddings,
             "one vocabulary and one embedding for both languages");
  vocabulary.path("source_model", o.source_model,
                  "a SentencePiece model for the source, instead of training one; or pieces of text that is "
                  "cut already: Marian's .yml or .vocab, fairseq's dict.txt");
  vocabulary.path("target_model", o.target_model, "the same for the target");
  model.path(
      "from", o.from,
      "fine-tune: start from the weights in this run, with its sizes and vocabularies; the schedule begins "
      "anew");
  EncoderDecoderConfig::for_each(o.model, model);
  model("post_norm", negated(o.model.layer.norm_first),
        "normalise after each residual sum, as the original did, not before");
  model("untied_head", negated(o.model.tie_target_head),
        "give the output its own matrix, not the target embedding");
  TrainingOptions::for_each(o.training, training);
  training("batch_tokens", o.batch_tokens,
           "positions a batch, per side, padding included, of all processes together", kPositive);
  training("label_smoothing", o.label_smoothing, "probability spread over all pieces", kBelowOne);
  training("r_drop", o.r_drop,
           "weight of the divergence between two passes with different dropout; 0 for one pass",
           kNotNegative);
}

TranslationOptions::TranslationOptions(const std::string& preset_name)
    : preset(preset_name.empty() ? translation_presets().front().name : preset_name) {
  model.encoder_layers = model.decoder_layers = 2;
  model.max_length = 128;
  model.layer.width = 128, model.layer.attention.heads = 4, model.layer.feed_forward = 256,
  model.layer.dropout = 0.1;
  for (const char* options : preset_named(translation_presets(), preset).options)
    from_json(parse_json(options), *this);
}

void TranslationOptions::add_to(const Command& command) { add_options(command, *this); }

void TranslationOptions::make_paths_absolute() { make_absolute(*this); }

Index TranslationOptions::sentences_held_out(Index of) const {
  return held_out > 0 ? held_out : std::min(kMostUnaskedHeldOut, std::max<Index>(2, of / 10));
}

TokenizerKind TranslationOptions::tokenizer_kind() const {
  if (tokenizer.empty()) return built_in() ? TokenizerKind::word : TokenizerKind::bpe;
  return tapeformer::tokenizer_kind(tokenizer);
}

EncoderDecoderConfig TranslationOptions::model_config(Index source_vocabulary,
                                                      Index target_vocabulary) const {
  EncoderDecoderConfig config = model;
  config.source_vocabulary = source_vocabulary;
  config.target_vocabulary = target_vocabulary;
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
  check_options(*this);
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
  require(r_drop == 0 || model.layer.dropout > 0 || model.layer.stochastic_depth > 0,
          "--r-drop needs --dropout above 0, by which its two passes differ");
  require(vocabulary > kSpecialTokens, "--vocabulary must be above " + std::to_string(kSpecialTokens) +
                                           "; got " + std::to_string(vocabulary));
  require(
      !model.tie_embeddings || (source_model.empty() && target_model.empty()) || source_model == target_model,
      "--shared-vocabulary needs the same file as --source-model and --target-model");
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
  if (!source_model.empty() && (model.tie_embeddings || !target_model.empty()))
    command.refuse({"--tokenizer", "--vocabulary"}, "with models or vocabularies of your own");
  training.refuse_ignored(command);
}

std::string translation_fields() {
  return fields_document("train_translation", EncoderDecoderConfig(), TranslationOptions());
}

void to_json(nlohmann::ordered_json& json, const TranslationOptions& options) { write_fields(json, options); }
void from_json(const nlohmann::ordered_json& json, TranslationOptions& options) {
  read_options(json, options);
}

void take_fine_tuned(TranslationOptions& options, const TranslationOptions& trained, const Command& command) {
  const Json wanted = options, has = trained;
  for_each_field(options, [&](const Field& field, auto&& member) {
    const std::string group = field.group, name = field.name;
    if ((group != "Vocabulary" && group != "Model") || name == "from" || name == "dropout" ||
        name == "stochastic_depth")
      return;
    const Json asked = wanted.value(name, Json()), kept = has.value(name, Json());
    if (command.find(flag_of(name)).given() && asked != kept) {
      throw Error(flag_of(name) + " " + asked.dump() + " contradicts --from " + options.from +
                  ", which has " + kept.dump());
    }
    if (kept.is_null()) return;  // another kind of attention's
    FieldValue<decltype(member)> value{};
    read_field(kept, field, value);
    set_value(member, value);
  });
}

}  // namespace tapeformer
