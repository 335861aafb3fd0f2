#pragma once

#include <tapeformer/nn/transformer/decoder_only_config.h>
#include <tapeformer/nn/transformer/encoder_decoder_config.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tapeformer {

/// The refusal of quantised weights of gpt-oss, with the remedy.
inline constexpr const char* kMxfp4Refusal =
    "4-bit weights are not implemented; try a copy in bf16, as transformers writes it with from_pretrained("
    "this, quantization_config=Mxfp4Config(dequantize=True)).save_pretrained(folder)";

template <class Config>
struct FamilyOf;

constexpr int kConfigLevels = 16;  ///< the deepest nesting that is accepted in a config.json

/// A model and the family that describes it.
template <class Config>
struct FamilyModelOf {
  const FamilyOf<Config>* family;  ///< one of families(), never null
  Config config;                   ///< the model's configuration, which has passed check()
};

/// The model that a config.json of transformers describes, of a type in families(). Fields that do not affect
/// the arithmetic (token ids, generation, versions; names that begin with an underscore) are skipped. The
/// file is refused if any other field is not implemented or unknown: transformers keeps adding fields, and a
/// user who knows that one is harmless can delete it.
/// Throws:  CheckpointError naming a field that is missing, damaged, unknown, or not implemented and relevant
///          to the arithmetic
template <class Config = DecoderOnlyConfig>
FamilyModelOf<Config> hugging_face_model(const std::string& json);
template <class Config = DecoderOnlyConfig>
Config hugging_face_config(const std::string& json) {
  return hugging_face_model<Config>(json).config;
}

/// The tokens that texts begin and end with, if the tokenizer has them.
struct ControlTokens {
  std::optional<std::int32_t> begin;     ///< begins a text, or a decoder's input
  std::vector<std::int32_t> ends;        ///< each ends a text
  std::optional<std::int32_t> pad = {};  ///< fills the rows of a batch
};

/// The inverse of hugging_face_config(): a config.json for transformers, in the family nearest to the model.
/// Training options that the type lacks (Llama has no residual dropout) are left out.
/// Throws:  CheckpointError naming every field that the type cannot express, or a token that is outside the
///          vocabulary
template <class Config>
std::string hugging_face_json(const Config& config, DType type = DType::f32,
                              const ControlTokens& tokens = {});

}  // namespace tapeformer
