#pragma once

#include <tapeformer/nn/formats/family.h>

#include <string>
#include <vector>

namespace tapeformer {

/// A field that a format wants changed, with the model's value and the wanted one as texts.
struct FieldChange {
  std::string field;  ///< its name in the configuration
  std::string has;    ///< the model's value
  std::string wants;  ///< the format's value
};

/// Another program's format of models, and the families that it knows.
template <class Config>
struct ModelFormatOf {
  const char* name;                               ///< "transformers"
  const std::vector<FamilyOf<Config>>& families;  ///< the families that it can express
};
/// A format of language models.
using ModelFormat = ModelFormatOf<DecoderOnlyConfig>;

/// A folder of transformers, of one of families().
template <class Config = DecoderOnlyConfig>
const ModelFormatOf<Config>& transformers_format();

/// How a format expresses a model.
template <class Config>
struct ExpressionOf {
  const ModelFormatOf<Config>* format;  ///< the requested format
  const FamilyOf<Config>* family;       ///< the nearest one, which wants the fewest changes
  Config nearest;                       ///< the model with these changes
  std::vector<FieldChange> changes;     ///< empty if the family expresses the model as it is

  /// The message that refuses the model, with these texts after "got" and "try".
  std::string refusal(const std::string& has, const std::string& wants) const;
  /// Throws:  CheckpointError naming every field that has to change
  void check() const;
};

/// How a format expresses a language model.
using Expression = ExpressionOf<DecoderOnlyConfig>;

/// The nearest expression of a model, by the family that wants the fewest changes. It refuses nothing, but
/// check() does.
template <class Config>
ExpressionOf<Config> expression_in(const ModelFormatOf<Config>& format, const Config& config);

}  // namespace tapeformer
