#pragma once

#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/examples/shared/training_options.h>
#include <tapeformer/nn/transformer/decoder_only.h>

#include <string>
#include <vector>

namespace tapeformer {

/// The text, and its tokenizer.
struct LanguageDataOptions {
  std::vector<std::string> corpus;      ///< files and folders; empty for the built-in text
  std::vector<std::string> validation;  ///< files and folders instead of a share of the corpus
  double validation_fraction = 0.1;     ///< share of the corpus, at its end
  std::string tokenizer = "character";  ///< character, byte, bpe or sentencepiece, where one is made
  std::string tokenizer_model;          ///< the file or folder of a tokenizer to use instead of making one
  Index vocabulary = 4096;              ///< most ids, where a bpe or sentencepiece tokenizer is made
  std::string loss_on = "all";          ///< all tokens, or answers, where the corpus is instructions

  /// Throws: Error naming the options that contradict each other.
  void check() const;
  /// Throws: Error naming an option that `command` was given and that would change nothing.
  void refuse_ignored(const Command& command) const;
  void describe(const FieldVisitor& field);
};

/// The longest default row in tokens; the cost of attention grows with the square of the length.
constexpr Index kMostUnaskedContext = 1024;

/// The shape of batches in the steps [first_step, end_step).
struct BatchShape {
  Index first_step = 0, end_step = 0, rows = 0, context = 0;
};

/// Everything that determines the results of a language model's run. Kept in config.json and the checkpoint.
/// The defaults are those of a preset: see language_presets().
struct LanguageOptions {
  std::string preset;
  // Data
  LanguageDataOptions data;
  std::string tokens;                ///< a folder that `prepare` wrote, instead of a corpus
  std::string order = "random";      ///< the order of windows: random or sequential
  std::string documents = "joined";  ///< the documents in a window: joined, or apart
  // Model
  std::string from;         ///< a run or Hugging Face folder with the initial weights
  DecoderOnlyConfig model;  ///< context: tokens of a run's rows, which may be fewer than those of `from`
  // Training
  TrainingOptions training;
  Index batch = 12;                              ///< rows of `context` tokens
  std::string batch_schedule, context_schedule;  ///< changes of rows and context, as in PiecewiseConstant
  bool fused_head = false;
  Index head_chunk = 0;
  Index validation_batches = 20;         ///< of the estimate; with auto, at most
  std::string validation_kind = "auto";  ///< auto, exact, estimate or both: see validation_plan

  /// The options of the preset of this name, or without a name of the first preset. Throws: Error
  explicit LanguageOptions(const std::optional<std::string>& preset_name = {});
  /// The model for a vocabulary of this size; not for a run that starts `from` another's weights.
  DecoderOnlyConfig model_config(Index vocabulary_size) const;
  /// The shapes of batches over the course of the run, from step 0 on.
  std::vector<BatchShape> batch_shapes() const;
  /// The configuration of the training loss.
  HeadLossConfig head_loss() const { return {fused_head, head_chunk}; }
  /// Throws: Error naming the options that contradict each other.
  void check() const;
  /// Throws: Error naming an option that `command` was given and that would change nothing.
  void refuse_ignored(const Command& command) const;
  void add_to(const Command& command) { add_options(command, fields_of(*this)); }
  void describe(const FieldVisitor& field);
};

/// The presets; the first one is the default.
const std::vector<Preset>& language_presets();

/// Sets the dropout of embeddings, attention weights and sublayers' outputs.
void set_dropout(DecoderOnlyConfig& model, double dropout);

/// Fits options that were not given to `command` to the given ones: another --attention than the preset's
/// resets what only the preset's kind has to the defaults, another --context, --batch or --order drops its
/// schedules, and TrainingOptions::adapt() fits the others.
void adapt_preset(LanguageOptions& options, const Command& command);

/// Makes `options` describe the model in options.from, whose configuration is `config`, but with at most the
/// given context, or without --context at most kMostUnaskedContext; a context shorter than the preset's drops
/// the preset's schedule.
/// Throws: as take_fine_tuned() of option_table.h
void take_fine_tuned(LanguageOptions& options, const DecoderOnlyConfig& config, const Command& command);

}  // namespace tapeformer
