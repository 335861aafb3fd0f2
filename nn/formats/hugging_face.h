#pragma once

#include <tapeformer/nn/formats/hugging_face_config.h>
#include <tapeformer/nn/formats/hugging_face_json.h>
#include <tapeformer/nn/transformer/decoder_only.h>

#include <string>

namespace tapeformer {

/// A checkpoint folder of a type in hugging_face_families(): config.json, and model.safetensors or
/// the files that model.safetensors.index.json lists, with transformers' names or Meta's; or Meta's
/// params.json and consolidated.safetensors. F16, BF16 and F64 become f32. In evaluation mode.
/// Throws:  CheckpointError naming the file and what is wrong with it
DecoderOnly load_hugging_face(const std::string& folder);

/// A single Llama file with Meta's names (tok_embeddings.weight, layers.0.attention.wq.weight, ...). Its
/// sizes follow from its tensors and from the arguments, which no tensor tells. In evaluation mode.
/// Throws:  CheckpointError
DecoderOnly load_meta_llama(const std::string& path, Index heads, Index context, double epsilon = 1e-5,
                            double base = 10000);

/// Writes config.json and model.safetensors so that transformers loads the same model: gpt2 for layer norm,
/// learned positions and tied or own heads, with zeros for biases that the model lacks; for RMS norm, rotary
/// positions and gated activations the family that expression_in_transformers() finds. `tokens` are those of
/// its tokenizer, whose files the caller writes. The folder must exist.
/// Throws:  CheckpointError naming what neither can express, or the file that cannot be written
void save_hugging_face(const std::string& folder, DecoderOnly& model, const ControlTokens& tokens = {});

/// True if the folder is one for load_hugging_face, false if its config.json is ours. Throws: CheckpointError
bool is_hugging_face(const std::string& folder);

}  // namespace tapeformer
