#pragma once

#include <tapeformer/nn/formats/safetensors_folder.h>
#include <tapeformer/nn/transformer/decoder_only_config.h>

#include <string>

namespace tapeformer {

/// The settings of a Llama with Meta's names that its tensors do not tell.
struct MetaLlamaSettings {
  Index heads = 0;         ///< H
  Index context = 2048;    ///< most tokens
  double epsilon = 1e-5;   ///< of the norms
  RotaryConfig rotations;  ///< of the rotary positions
};

/// True if the tensors have Meta's names.
bool has_meta_names(const SafetensorsFolder& files);

/// The configuration, with all other sizes from the tensors. The head is tied if there is no tensor for it.
/// Throws:  CheckpointError naming a tensor that is missing or has no sensible shape
DecoderOnlyConfig meta_llama_config(const SafetensorsFolder& files, const MetaLlamaSettings& settings);

/// The same, with the settings from a params.json. Its sizes must agree with the tensors.
/// Throws:  CheckpointError naming the field or tensor that does not fit, or is unknown
DecoderOnlyConfig meta_llama_config(const SafetensorsFolder& files, const std::string& params_json);

}  // namespace tapeformer
