#pragma once

#include <tapeformer/nn/transformer/decoder_only_config.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tapeformer {

/// The tokens that texts begin and end with, if the tokenizer has them.
struct ControlTokens {
  /// The id that begins a text, if there is one.
  std::optional<std::int32_t> begin;
  /// The ids that end one.
  std::vector<std::int32_t> ends;
};

/// The inverse of hugging_face_config(): a config.json that transformers reads, of the family that
/// expression_in_transformers() finds. Options of training that the type lacks (llama has no residual
/// dropout) are left out.
/// Throws:  CheckpointError naming every field that the type cannot express, or a token that is outside the
///          vocabulary
std::string hugging_face_json(const DecoderOnlyConfig& config, DType type = DType::f32,
                              const ControlTokens& tokens = {});

}  // namespace tapeformer
