#pragma once

#include <tapeformer/nn/transformer/decoder_only_config.h>

#include <string>
#include <vector>

namespace tapeformer {

/// Whose names tensors have: transformers' of a GPT-2 or a Llama, or Meta's of a Llama.
enum class ForeignFormat { gpt2, llama, meta };

/// A tensor of another program, and how its elements lie in a parameter of ours.
struct ForeignPart {
  std::string name;
  Shape shape;              ///< there
  bool transposed = false;  ///< [in, out] there, [out, in] here
  /// Of queries or keys, which turn in pairs of rows (i, i + D/2) there, (2i, 2i + 1) here: heads; else 0.
  Index interleaved_heads = 0;
};

/// A parameter of ours: the parts, one below the other.
struct ForeignParameter {
  std::string name;
  std::vector<ForeignPart> parts;
};

/// Where every parameter of such a model is. Biases that a GPT-2 always has are listed though the model has
/// none. A tied head is the embedding.
/// With half_split rotary positions ours lie as in transformers, with interleaved ones as in Meta's files.
std::vector<ForeignParameter> foreign_parameters(ForeignFormat format, const DecoderOnlyConfig& config);

/// What the names of all tensors but the head begin with in models that have a head: "transformer.".
std::string name_prefix(ForeignFormat format);
/// The head's weight, which a model with tied weights may have beside the embedding.
std::string head_name(ForeignFormat format);
/// The embedding's weight, prefix included.
std::string embedding_name(ForeignFormat format);
/// True for constants that some versions store among the weights: masks and rotary frequencies.
bool is_constant(ForeignFormat format, const std::string& name);

/// A tensor of another program as it lies here; not for interleaved_heads, as what is loaded keeps the layout
/// that it has there.
Tensor to_ours(const ForeignPart& part, const Tensor& theirs);
/// The way back.
Tensor to_theirs(const ForeignPart& part, const Tensor& ours);

}  // namespace tapeformer
