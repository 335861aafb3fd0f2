#pragma once

#include <tapeformer/nn/formats/expression.h>
#include <tapeformer/nn/formats/gguf.h>
#include <tapeformer/nn/transformer/decoder_only.h>

namespace tapeformer {

/// Files for llama.cpp: GPT-2 and Llama, each with the only activation that llama.cpp has for it.
const ModelFormat& gguf_format();

/// The metadata of a model: its architecture, gpt2 for layer norm and llama for RMS norm, and its sizes.
/// Throws:  CheckpointError naming every field that the architecture cannot express
GgufMetadata gguf_metadata(const DecoderOnlyConfig& config);

/// Writes a file for llama.cpp and other programs that read GGUF: the model's metadata, then `tokenizer`'s,
/// then the weights. Matrices have the given type; learned positions, norms and biases are f32.
/// Throws:  CheckpointError naming what the format cannot express, or the file that cannot be written
void save_gguf_model(const std::string& path, DecoderOnly& model, const GgufMetadata& tokenizer,
                     GgufType type = GgufType::f16);

}  // namespace tapeformer
