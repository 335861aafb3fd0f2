#pragma once

#include <tapeformer/nn/transformer/decoder_only_config.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tapeformer {

constexpr int kConfigLevels = 16;  ///< the deepest nesting of a config.json that is read

/// The model of type gpt2 or llama that a config.json of transformers describes. Fields that do not affect
/// the arithmetic (token ids, generation, versions; names that begin with an underscore) are skipped. All
/// others must be implemented, or the file is refused, unknown fields included: transformers keeps adding
/// fields, and whoever knows that one is harmless can delete it.
/// Throws:  CheckpointError naming a field that is missing or damaged, that changes the arithmetic and is not
///          implemented, or that is unknown
DecoderOnlyConfig hugging_face_config(const std::string& json);

/// The tokens that texts begin and end with, if the tokenizer has them.
struct ControlTokens {
  /// The ids that begin and end a text, where there are some.
  std::optional<std::int32_t> begin, end;
};

/// Refuses a model that is neither a gpt2 (layer norm) nor a llama (RMS norm), as `program` has them, except
/// for its activation.
/// Throws:  CheckpointError naming every field that the program's model cannot express
void check_expressible(const DecoderOnlyConfig& config, const std::string& program);

/// The inverse: a config.json that transformers reads, gpt2 for layer norm and llama for RMS norm. Options
/// of training that the type lacks (llama has no residual dropout) are left out.
/// Throws:  CheckpointError naming every field that the type cannot express, or a token that is outside the
///          vocabulary
std::string hugging_face_json(const DecoderOnlyConfig& config, DType type = DType::f32,
                              const ControlTokens& tokens = {});

}  // namespace tapeformer
