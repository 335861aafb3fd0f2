#pragma once

#include <tapeformer/nn/formats/hugging_face_family.h>

#include <string>
#include <vector>

namespace tapeformer {

/// A field in which two models differ, and its values as texts.
struct FieldChange {
  /// Its name, the model's value and the one that a format wants.
  std::string field, has, wants;
};

/// How a format expresses a model.
struct Expression {
  const char* format;                ///< "transformers" or "gguf"
  const HuggingFaceFamily* family;   ///< that comes nearest: it wants the fewest changes
  DecoderOnlyConfig nearest;         ///< the model with these changes
  std::vector<FieldChange> changes;  ///< none: the family expresses the model as it is

  /// The message that refuses the model, with what stands for its changes: "got" and "try".
  std::string refusal(const std::string& has, const std::string& wants) const;
  /// Throws:  CheckpointError naming every field that has to change
  void check() const;
};

/// A folder of transformers, of one of hugging_face_families().
Expression expression_in_transformers(const DecoderOnlyConfig& config);
/// A GGUF file of ours, of gpt2 or llama, each with the one activation that llama.cpp computes.
Expression expression_in_gguf(const DecoderOnlyConfig& config);

/// The whole number n, as transformers wants it, of which score_scale is 1 / sqrt(n); 0 if there is none.
Index query_scalar(double score_scale);

}  // namespace tapeformer
