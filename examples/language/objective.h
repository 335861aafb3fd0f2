#pragma once

#include <tapeformer/data/token_windows.h>
#include <tapeformer/data/tokenizers/tokenizer.h>
#include <tapeformer/nn/transformer/decoder_only_config.h>

#include <string>
#include <vector>

namespace tapeformer {

/// The source of an objective's choices.
struct ObjectiveDraw {
  std::uint64_t seed = 0;  ///< of all draws
  Index first = 0;         ///< the number of the batch's first row among all
  Index length = 0;        ///< tokens of a row, even where rows are joined to one
  Index vocabulary = 0;    ///< V
  std::int32_t mask = 0;   ///< the mask token
};

/// The tokens that a language model learns to predict.
struct Objective {
  const char* name;    ///< the value of --objective
  const char* help;    ///< what is predicted
  bool prefix;         ///< DecoderOnlyConfig::prefix of its models
  bool bidirectional;  ///< DecoderOnlyConfig::bidirectional of its models
  /// Changes a batch of next tokens, in place; returns the lengths of the rows' prefixes, if they have any.
  Tensor (*prepare)(const TokenBatch& batch, const ObjectiveDraw& draw);
};

/// The next token; the next token after a prompt that sees itself in both directions and holds no targets,
/// whose length in 1 .. T - 1 is a function of the seed and the row's number (Raffel et al. 2020,
/// arXiv:1910.10683, section 3.2.1); and masked tokens.
const std::vector<Objective>& objectives();
/// The objective of a model.
const Objective& objective_of(const DecoderOnlyConfig& model);
/// Gives the model the fields of an objective. Throws: Error that lists the names
void set_objective(DecoderOnlyConfig& model, const std::string& name);

/// The tokenizer's mask token, see mask_name(), or else the id after its last one, for which the model has a
/// further row.
std::int32_t mask_token(const Tokenizer& tokenizer);
/// The rows of a new model: one for each token, and for the mask token if its objective has one.
Index vocabulary_with_mask(const DecoderOnlyConfig& model, Index vocabulary, const Tokenizer& tokenizer);

}  // namespace tapeformer
