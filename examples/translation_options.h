#pragma once

#include <tapeformer/data/tokenizer.h>
#include <tapeformer/examples/training_options.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace tapeformer {

class Command;

/// Everything that decides what a translation training computes. Kept in config.json and the checkpoint.
struct TranslationOptions {
  // Data: pairs, or source and target, or neither for the built-in corpus.
  std::string pairs, source, target;
  bool swap = false;
  Index grammar_pairs = 100000;  ///< sampled from the built-in corpus
  Index max_words = 0;           ///< per side; 0 for no limit
  Index held_out = 2000;         ///< source sentences, half validation and half test
  // Vocabulary
  std::string tokenizer;  ///< empty: words for the built-in corpus, bpe for files
  Index vocabulary = 8000;
  bool shared_vocabulary = false;
  std::string source_model, target_model;  ///< SentencePiece models to use instead of training
  // Model
  std::string from;  ///< a run whose weights and vocabularies training starts from
  Index width = 128, heads = 4, encoder_layers = 2, decoder_layers = 2, feed_forward = 256, max_length = 128;
  double dropout = 0.1;
  std::string activation = "relu", positions = "sinusoidal";
  std::string attention = "mha";
  Index groups = 0, latent_width = 0;  ///< 0 for the attention's own defaults
  bool post_norm = false, untied_head = false;
  // Training
  TrainingOptions training;
  Index batch_tokens = 2048;
  double label_smoothing = 0.1;

  bool built_in() const { return pairs.empty() && source.empty() && target.empty(); }
  TokenizerKind tokenizer_kind() const;
  /// So that a run can be resumed and evaluated from another folder.
  void make_paths_absolute();
  /// The model for vocabularies of these sizes.
  EncoderDecoderConfig model_config(Index source_vocabulary, Index target_vocabulary) const;
  /// Throws: Error naming the options that contradict each other.
  void check() const;
  void add_to(const Command& command);
  /// Names every option once; see option_table.h.
  template <class Self, class F>
  static void for_each(Self& o, const F& f);
};

void to_json(nlohmann::ordered_json& json, const TranslationOptions& options);
/// Throws: nlohmann::json::exception if a field is missing or of another type.
void from_json(const nlohmann::ordered_json& json, TranslationOptions& options);

/// Makes `options` describe a model that starts from the run in options.from, which was trained as `trained`
/// says: its vocabularies and its model, but for the dropout.
/// Throws: Error naming an option that `command` was given and that says otherwise
void take_fine_tuned(TranslationOptions& options, const TranslationOptions& trained, const Command& command);

}  // namespace tapeformer
