#pragma once

#include <tapeformer/nn/formats/hugging_face_config.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <string>

namespace tapeformer {

/// A DecoderOnly or EncoderDecoder from a checkpoint folder of a type in families(): config.json, and
/// model.safetensors or the files that model.safetensors.index.json lists. F16, BF16 and F64 become f32.
/// The model is in evaluation mode.
/// Throws:  CheckpointError naming the file and what is wrong with it
template <class Model = DecoderOnly>
Model load_hugging_face(const std::string& folder);

/// Writes config.json and model.safetensors so that transformers loads the same model, in the family nearest
/// to it, with zeros for biases that the family has and the model lacks. `tokens` are those of its tokenizer,
/// whose files the caller writes. The folder must exist.
/// Throws:  CheckpointError naming fields that the family cannot express, or the file that cannot be written
template <class Model>
void save_hugging_face(const std::string& folder, Model& model, const ControlTokens& tokens = {});

/// True if the folder is one for load_hugging_face, false if its config.json is ours. Throws: CheckpointError
bool is_hugging_face(const std::string& folder);

}  // namespace tapeformer
