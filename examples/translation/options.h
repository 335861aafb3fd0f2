#pragma once

#include <tapeformer/data/parallel_corpus.h>
#include <tapeformer/data/tokenizers/tokenizer.h>
#include <tapeformer/data/tokenizers/transformers.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/examples/shared/training_options.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <string>
#include <vector>

namespace tapeformer {

/// The files of sentence pairs: one tab-separated file, two aligned ones, or none.
struct PairFiles {
  std::string pairs, source, target;

  bool empty() const { return pairs.empty() && source.empty() && target.empty(); }
  /// The name that messages use.
  const std::string& name() const { return pairs.empty() ? source : pairs; }
  /// Throws: Error for pairs next to source and target, or only one of these two; with `prefix`
  ///         "validation-" the options are --validation-pairs and so on.
  void check(const std::string& prefix = {}) const;
  /// Throws: DataError
  std::vector<TextPair> read(bool swap) const;
};

/// The languages and the prefix of sentences, for models of several languages or tasks; an empty value means
/// the model's own.
struct SentenceOptions {
  Languages languages;
  std::string source_prefix;

  void describe(const FieldVisitor& field);
  /// A copy, with `others` in place of empty values.
  SentenceOptions or_those_of(const SentenceOptions& others) const;
};

/// The largest default number of held-out source sentences.
constexpr Index kMostUnaskedHeldOut = 2000;

/// Everything that determines the results of a translation run. Kept in config.json and the checkpoint.
struct TranslationOptions {
  std::string preset;
  // Data: the text to train on, or none for the built-in corpus; if there are files for validation, with or
  // without files for the test, nothing is held out of it.
  PairFiles text, validation, test;
  bool swap = false;
  Index grammar_pairs = 15000;  ///< the number of first pairs of the built-in corpus
  Index max_words = 0;          ///< per side; 0 for no limit
  Index held_out = 0;  ///< source sentences, half validation and half test; 0: see sentences_held_out
  SentenceOptions sentences;
  // Vocabulary
  std::string tokenizer;  ///< empty: words for the built-in corpus, bpe for files
  Index vocabulary = 8000;
  std::string source_model,
      target_model;  ///< SentencePiece models or text vocabularies, used instead of training
  // Model
  std::string from;            ///< a run with the initial weights and the vocabularies
  EncoderDecoderConfig model;  ///< without the sizes of the vocabularies
  // Training
  TrainingOptions training;
  Index batch_tokens = 2048;
  double label_smoothing = 0.1;

  /// The options of the preset of this name; the first without one. Throws: Error
  explicit TranslationOptions(const std::optional<std::string>& preset_name = {});
  bool built_in() const { return text.empty(); }
  /// held_out; if that is 0, a tenth of the text's `of` sources, from 2 to kMostUnaskedHeldOut.
  Index sentences_held_out(Index of) const;
  std::string tokenizer_kind() const;
  /// The model for vocabularies of these sizes.
  EncoderDecoderConfig model_config(Index source_vocabulary, Index target_vocabulary) const;
  /// Throws: Error naming the options that contradict each other.
  void check() const;
  /// Throws: Error naming an option that `command` was given and that would change nothing.
  void refuse_ignored(const Command& command) const;
  void add_to(const Command& command) { add_options(command, fields_of(*this)); }
  void describe(const FieldVisitor& field);
};

/// The presets; the first one is the default.
const std::vector<Preset>& translation_presets();

/// Makes `options` describe a model that starts from the run in options.from, whose options are `trained`:
/// with the vocabularies and the model of that run, except for dropout and adapters.
/// Throws: as take_fine_tuned() of option_table.h
void take_fine_tuned(TranslationOptions& options, const TranslationOptions& trained, const Command& command);

}  // namespace tapeformer
