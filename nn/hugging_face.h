#pragma once

#include <tapeformer/nn/transformer/decoder_only.h>

#include <string>

namespace tapeformer {

/// The model that a config.json of transformers describes, of type gpt2 or llama.
/// Throws:  CheckpointError naming a field that is missing or damaged, or that changes the arithmetic and is
///          not implemented
DecoderOnlyConfig hugging_face_config(const std::string& json);

/// A GPT-2 or Llama checkpoint folder: config.json, and model.safetensors or the files that
/// model.safetensors.index.json lists, with transformers' names or Meta's. F16 and BF16 become f32. In evaluation
/// mode.
/// Throws:  CheckpointError naming the file and what is wrong with it
DecoderOnly load_hugging_face(const std::string& folder);

/// A single Llama file with Meta's names (tok_embeddings.weight, layers.0.attention.wq.weight, ...), whose sizes
/// follow from its tensors, and from `heads`, `epsilon` and `base`, which no tensor tells.
/// Throws:  CheckpointError
DecoderOnly load_meta_llama(const std::string& path, Index heads, Index context, double epsilon = 1e-5,
                            double base = 10000);

/// Writes config.json and model.safetensors so that transformers loads the same model: gpt2 for layer norm, learned
/// positions, gelu and tied heads, llama for RMS norm, rotary positions, swiglu.
/// Throws:  CheckpointError naming what neither can express, or the file that cannot be written
void save_hugging_face(const std::string& folder, DecoderOnly& model);

/// True if the folder's config.json is of transformers, false if it is ours. Throws: CheckpointError
bool is_hugging_face(const std::string& folder);

}  // namespace tapeformer
