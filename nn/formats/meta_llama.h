#pragma once

#include <tapeformer/nn/formats/safetensors_folder.h>
#include <tapeformer/nn/transformer/decoder_only_config.h>

#include <string>

namespace tapeformer {

/// What the tensors of a Llama with Meta's names do not tell.
struct MetaLlamaSettings {
  Index heads = 0;
  Index context = 2048;
  double epsilon = 1e-5;
  RotaryConfig rotations;
};

/// True if the tensors have Meta's names.
bool has_meta_names(const SafetensorsFolder& files);

/// The model whose other sizes the tensors have. Its head is tied if there is none among them.
/// Throws:  CheckpointError naming a tensor that is missing or has no sensible shape
DecoderOnlyConfig meta_llama_config(const SafetensorsFolder& files, const MetaLlamaSettings& settings);

/// The same, the settings taken from a params.json, whose sizes must be those of the tensors.
/// Throws:  CheckpointError naming the field or tensor that does not fit, or is unknown
DecoderOnlyConfig meta_llama_config(const SafetensorsFolder& files, const std::string& params_json);

}  // namespace tapeformer
