#pragma once

#include <tapeformer/nn/transformer/decoder_only_config.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tapeformer {

constexpr int kConfigLevels = 16;  ///< of a config.json, labels and parameters of tasks included

/// The model that a config.json of transformers describes, of type gpt2 or llama. Fields that say nothing
/// about the arithmetic (token ids, generation, versions; names that begin with an underscore) are passed
/// over. Of the others those that are implemented are used, and the rest is refused, unknown fields
/// included: transformers adds fields all the time, and whoever knows that one is harmless can delete it.
/// Throws:  CheckpointError naming a field that is missing or damaged, that changes the arithmetic and is not
///          implemented, or that is unknown
DecoderOnlyConfig hugging_face_config(const std::string& json);

/// What texts begin and end with, where the tokenizer has it.
struct ControlTokens {
  std::optional<std::int32_t> begin, end;
};

/// The other way, as a config.json that transformers reads: gpt2 for layer norm, llama for RMS norm.
/// Options of training that the type does not have (a llama's dropout of what is added) are left out.
/// Throws:  CheckpointError naming every field that the type cannot express, or a token that is outside the
///          vocabulary
std::string hugging_face_json(const DecoderOnlyConfig& config, DType type = DType::f32,
                              const ControlTokens& tokens = {});

}  // namespace tapeformer
