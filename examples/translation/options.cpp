#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/translation/options.h>

#include <algorithm>
#include <filesystem>

namespace tapeformer {

void SentenceOptions::describe(const FieldVisitor& field) {
  field("source_language", languages.source,
        "the language of sources, for mBART, M2M100 and NLLB: fra_Latn, fr_XX or fr, as the model has it; "
        "without it, the model's own");
  field("target_language", languages.target, "the language of translations, likewise");
  field("source_prefix", source_prefix, "text before every source, for T5: 'translate English to German: '");
}

SentenceOptions SentenceOptions::or_those_of(const SentenceOptions& others) const {
  const auto either = [](const std::string& first, const std::string& second) {
    return first.empty() ? second : first;
  };
  return {
      {either(languages.source, others.languages.source), either(languages.target, others.languages.target)},
      either(source_prefix, others.source_prefix)};
}

void TranslationOptions::describe(const FieldVisitor& field) {
  const auto in_data = field.in_group("Data"), in_vocabulary = field.in_group("Vocabulary"),
             in_model = field.in_group("Model"), in_training = field.in_group("Training");
  field.in_group("Preset")("preset", preset, "where the defaults below come from; see the end of this text");
  in_data.path("pairs", text.pairs, "tab-separated pairs, source first; further columns are ignored");
  in_data.path("source", text.source, "source sentences, one per line (with --target)");
  in_data.path("target", text.target, "their translations, one per line (with --source)");
  in_data.path("validation_pairs", validation.pairs,
               "validate on these tab-separated pairs; then nothing is held out of the training text");
  in_data.path("validation_source", validation.source, "the same as two files (with --validation-target)");
  in_data.path("validation_target", validation.target, "their translations (with --validation-source)");
  in_data.path("test_pairs", test.pairs,
               "the pairs that `evaluate` measures, with validation files of your own");
  in_data.path("test_source", test.source, "the same as two files (with --test-target)");
  in_data.path("test_target", test.target, "their translations (with --test-source)");
  in_data("swap", swap, "translate from the second column of tab-separated files to the first");
  in_data("grammar_pairs", grammar_pairs,
          "how many pairs of the built-in corpus to train on when no file is given, at most 15000",
          kPositive);
  in_data("max_words", max_words,
          "leave out pairs of --pairs, or --source and --target, with more words on a side; 0 keeps all",
          kNotNegative);
  in_data(
      "held_out", held_out,
      "source sentences held out, half for validation, half for the test; 0 for 2000, or a tenth where that "
      "is less");
  sentences.describe(in_data);
  in_vocabulary("tokenizer", tokenizer,
                "word, space (for text that is already segmented), character, bpe, unigram or marian "
                "(unigram with the ids of MarianMT); empty for word on the built-in corpus, bpe on files");
  in_vocabulary("vocabulary", vocabulary, "largest number of pieces");
  in_vocabulary("shared_vocabulary", model.tie_embeddings,
                "one vocabulary and one embedding for both languages");
  in_vocabulary.path("source_model", source_model,
                     "a SentencePiece model for the source, instead of training one; or pieces of text that "
                     "is already segmented: Marian's .yml or .vocab, fairseq's dict.txt");
  in_vocabulary.path("target_model", target_model, "the same for the target");
  in_model.path(
      "from", from,
      "fine-tune: start from the weights in this run, or folder of transformers or Marian, with its sizes "
      "and vocabularies; the schedule begins again");
  model.describe(in_model);
  in_model("post_norm", negated(model.layer.norm_first),
           "normalise after each residual sum, as the original did, not before");
  in_model("untied_head", negated(model.tie_target_head),
           "give the output its own matrix, not the target embedding");
  training.describe(in_training);
  in_training("batch_tokens", batch_tokens,
              "positions per batch and side, padding included, over all processes", kPositiveSize);
  in_training("label_smoothing", label_smoothing, "probability spread over all pieces", kBelowOne);
}

TranslationOptions::TranslationOptions(const std::optional<std::string>& preset_name)
    : preset(preset_name.value_or(translation_presets().front().name)) {
  model.encoder_layers = model.decoder_layers = 2;
  model.max_length = 128;
  model.layer.width = 128, model.layer.attention.heads = 4, model.layer.feed_forward = 256,
  model.layer.dropout = 0.1;
  for (const char* options : element_named(translation_presets(), preset, "--preset").options)
    read_options(parse_json(options), fields_of(*this));
}

Index TranslationOptions::sentences_held_out(Index of) const {
  return held_out > 0 ? held_out : std::min(kMostUnaskedHeldOut, std::max<Index>(2, of / 10));
}

std::string TranslationOptions::tokenizer_kind() const {
  return !tokenizer.empty() ? tokenizer : built_in() ? "word" : "bpe";
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
  check_options(fields_of(*this));
  text.check();
  validation.check("validation-");
  test.check("test-");
  bool tabbed = false;
  for (const PairFiles* files : {&text, &validation, &test}) {
    tabbed = tabbed || !files->pairs.empty();
    std::error_code missing;
    for (const std::string* path : {&files->pairs, &files->source, &files->target})
      require(*path != kStandardInput && !std::filesystem::is_fifo(*path, missing),
              "a run reads its text again when it resumes, but standard input (-) or a pipe can be read only "
              "once; name a file");
  }
  require(!swap || tabbed, "--swap needs --pairs");
  require(validation.empty() || !built_in(),
          "validation files of your own need a text of your own: --pairs, or --source and --target");
  require(test.empty() || !validation.empty(),
          "test files need validation files: --validation-pairs, or --validation-source and "
          "--validation-target; or leave them to `evaluate --pairs`");
  require(held_out == 0 || held_out >= 2,
          format("--held-out must be at least 2, for one validation and one test sentence, or 0 for the "
                 "default; got {}",
                 held_out));
  require(vocabulary > kSpecialTokens,
          format("--vocabulary must be above {}; got {}", kSpecialTokens, vocabulary));
  require(
      !model.tie_embeddings || (source_model.empty() && target_model.empty()) || source_model == target_model,
      "--shared-vocabulary needs the same file as --source-model and --target-model");
  training.check();
  if (from.empty()) tapeformer::tokenizer_kind(sentence_tokenizers(), tokenizer_kind());
  model_config(vocabulary, vocabulary).check();  // whatever the sizes of the vocabularies will be
}

void TranslationOptions::refuse_ignored(const Command& command) const {
  if (built_in()) {
    command.refuse({"--max-words"}, "on the built-in corpus");
  } else {
    command.refuse({"--grammar-pairs"}, "with a text of your own");
  }
  if (!validation.empty())
    command.refuse({"--held-out"}, "with validation files, which are held out instead");
  if (!source_model.empty() && (model.tie_embeddings || !target_model.empty()))
    command.refuse({"--tokenizer", "--vocabulary"}, "with models or vocabularies of your own");
  const bool has_rotary_keys = model.layer.attention.kind == "mla" && model.positions != PositionKind::none &&
                               model.layer.attention.shared_key_rotation;
  if (model.positions != PositionKind::rotary && !has_rotary_keys)
    command.refuse({"--rotary-base"}, "without --positions rotary or --attention mla");
  refuse_unused_parts(command, model.positions, model.layer.attention, model.layer.experts);
  refuse_unused_adapters(command, !from.empty(), model.adapter.rank > 0);
  training.refuse_ignored(command);
}

void take_fine_tuned(TranslationOptions& options, const TranslationOptions& trained, const Command& command) {
  const TranslationOptions asked = options;
  options.model = trained.model;
  options.tokenizer = trained.tokenizer, options.vocabulary = trained.vocabulary;
  options.source_model = trained.source_model, options.target_model = trained.target_model;
  options.sentences = asked.sentences.or_those_of(trained.sentences);
  take_fine_tuned(fields_of(options), fields_of(asked), options.from, command);
}

}  // namespace tapeformer
