#pragma once

#include <tapeformer/nn/transformer/decoder_only_config.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tapeformer {

struct Family;

constexpr int kConfigLevels = 16;  ///< the deepest nesting of a config.json that is read

/// A model and the family that describes it.
struct FamilyModel {
  const Family* family;      ///< one of families(), never null
  DecoderOnlyConfig config;  ///< the model, which has passed check()
};

/// The model that a config.json of transformers describes, of a type in families(). Fields that do not affect
/// the arithmetic (token ids, generation, versions; names that begin with an underscore) are skipped. All
/// others must be implemented, or the file is refused, unknown fields included: transformers keeps adding
/// fields, and a user who knows that one is harmless can delete it.
/// Throws:  CheckpointError naming a field that is missing or damaged, that changes the arithmetic and is not
///          implemented, or that is unknown
FamilyModel hugging_face_model(const std::string& json);
inline DecoderOnlyConfig hugging_face_config(const std::string& json) {
  return hugging_face_model(json).config;
}

/// The tokens that texts begin and end with, if the tokenizer has them.
struct ControlTokens {
  std::optional<std::int32_t> begin;  ///< begins a text
  std::vector<std::int32_t> ends;     ///< each ends one
};

/// The opposite of hugging_face_config(): a config.json that transformers reads, of the family that is
/// nearest to the model. Options of training that the type lacks (Llama has no residual dropout) are left
/// out.
/// Throws:  CheckpointError naming every field that the type cannot express, or a token that is outside the
///          vocabulary
std::string hugging_face_json(const DecoderOnlyConfig& config, DType type = DType::f32,
                              const ControlTokens& tokens = {});

}  // namespace tapeformer
