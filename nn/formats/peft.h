#pragma once

#include <tapeformer/nn/transformer/decoder_only.h>

#include <string>

// Adapters of language models as PEFT stores them, in a folder with adapter_config.json and
// adapter_model.safetensors, for models of transformers.
namespace tapeformer {

/// The model that the adapters in a folder are for, as its configuration names it; empty for a folder without
/// adapters.
/// Throws:  CheckpointError if the configuration is not readable
std::string peft_base(const std::string& folder);

/// Adds to a model's weights what the adapters in a folder add to them. The names are those of the nearest
/// family. Adapters may differ in what they adapt, but have one rank and scale.
/// Throws:  CheckpointError naming the file and a setting or a tensor that is unknown or unsupported; the
///          model has unspecified weights then
void apply_peft(const std::string& folder, DecoderOnly& model);

/// Writes the adapters of a model, for the model of transformers in the folder `base`. Adapters of a matrix
/// that is several in transformers have the same A there. The folder must exist.
/// Throws:  CheckpointError naming fields that no family can express, or the file that cannot be written
void save_peft(const std::string& folder, DecoderOnly& model, const std::string& base);

}  // namespace tapeformer
