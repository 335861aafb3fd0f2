#pragma once

#include <tapeformer/examples/training_options.h>
#include <tapeformer/nn/transformer/decoder_only.h>

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tapeformer {

/// Everything that decides what the training of a language model computes. Kept in config.json and the checkpoint.
struct LanguageOptions {
  // Data
  std::vector<std::string> corpus;      ///< files and folders; empty for the project's own sources
  std::vector<std::string> validation;  ///< files and folders instead of a share of the corpus
  double validation_fraction = 0.1;     ///< the last part of the corpus
  std::string tokens;                   ///< a folder that `prepare` wrote, instead of a corpus
  std::string tokenizer;                ///< character, byte, bpe or sentencepiece; empty: character
  std::string tokenizer_model;          ///< files of a tokenizer to use instead of making one
  Index vocabulary = 4096;              ///< most ids, where a tokenizer is made
  std::string order = "random";         ///< of windows: random or sequential
  // Model
  std::string from;  ///< a run or Hugging Face folder whose weights training starts from
  Index layers = 4, heads = 4, width = 128, context = 64;
  std::string attention = "mha";
  Index groups = 0, head_width = 0, latent_width = 0, query_latent_width = 0, rotary_width = 0;
  std::string norm = "layer", positions = "learned", feed_forward_kind = "gelu";
  Index feed_forward = 0;
  double rotary_base = 10000, epsilon = 1e-5;
  bool bias = false, untied_head = false, prefix = false;
  double dropout = 0;
  // Training
  TrainingOptions training;
  Index batch = 12;  ///< rows of `context` tokens
  bool fused_head = false;
  Index head_chunk = 0;
  Index validation_batches = 20;  ///< of the estimate
  std::string validation_kind = "both";  ///< exact, estimate or both

  /// Throws: Error naming the options that contradict each other.
  void check() const;
  DecoderOnlyConfig model_config(Index vocabulary_size) const;
};

}  // namespace tapeformer
