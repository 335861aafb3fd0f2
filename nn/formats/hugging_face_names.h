#pragma once

#include <tapeformer/nn/transformer/decoder_only.h>

#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// The names of tensors: transformers' for GPT-2 or Llama, Meta's for Llama, or GGUF's for both.
enum class ForeignFormat { gpt2, llama, meta, gguf_gpt2, gguf_llama };

/// A tensor of another program, and its layout in a parameter of ours.
struct ForeignPart {
  std::string name;
  Shape shape;              ///< there
  bool transposed = false;  ///< [in, out] there, [out, in] here
  /// The number of heads if rotary positions rotate rows (i, i + D/2) of these queries or keys there, and
  /// rows (2i, 2i + 1) here; else 0.
  Index interleaved_heads = 0;
  Index half_split_heads = 0;  ///< the same the other way round: (2i, 2i + 1) there, (i, i + D/2) here
  double less = 0;             ///< numbers there are this much smaller
};

/// A parameter of ours: the parts, one below the other.
struct ForeignParameter {
  std::string name;
  std::vector<ForeignPart> parts;
};

/// The tensors of every parameter of such a model. Biases that a GPT-2 always has are listed even if the
/// model has none; a tied head is not. With half_split rotary positions our layout is transformers', with
/// interleaved ones Meta's.
std::vector<ForeignParameter> foreign_parameters(ForeignFormat format, const DecoderOnlyConfig& config);

/// The prefix of all names except the head's in models that have a head: "transformer.".
std::string name_prefix(ForeignFormat format);
/// The head's weight, which a model with tied weights may have beside the embedding.
std::string head_name(ForeignFormat format);
/// The embedding's weight, prefix included.
std::string embedding_name(ForeignFormat format);
/// True for constants that some versions store among the weights: masks and rotary frequencies.
bool is_constant(ForeignFormat format, const std::string& name);

/// Converts a tensor of another program. Ignores the order of heads' rows: a loaded model keeps the layout
/// that it had.
Tensor to_ours(const ForeignPart& part, const Tensor& theirs);
/// The inverse of to_ours, with the order of heads' rows.
Tensor to_theirs(const ForeignPart& part, const Tensor& ours);

/// All tensors of a model, as the other program has them; zeros for biases that the model lacks.
/// Throws:  CheckpointError naming a parameter that only one of the two has
std::vector<std::pair<std::string, Tensor>> foreign_tensors(ForeignFormat format, DecoderOnly& model);

}  // namespace tapeformer
