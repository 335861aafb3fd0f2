#pragma once

#include <tapeformer/nn/formats/family.h>

#include <string>
#include <vector>

namespace tapeformer {

/// A field in which two models differ, the model's value and the one that a format wants, as texts.
struct FieldChange {
  std::string field;  ///< its name in the configuration
  std::string has;    ///< the model's value
  std::string wants;  ///< the format's value
};

/// A format of models of other programs, and the families of which they are there.
struct ModelFormat {
  const char* name;                     ///< "transformers"
  const std::vector<Family>& families;  ///< the families that it can express
};
/// A folder of transformers, of one of families().
const ModelFormat& transformers_format();

/// How a format expresses a model.
struct Expression {
  const ModelFormat* format;         ///< the format asked for
  const Family* family;              ///< the nearest one, which wants the fewest changes
  DecoderOnlyConfig nearest;         ///< the model with these changes
  std::vector<FieldChange> changes;  ///< none: the family expresses the model as it is

  /// The message that refuses the model, with this for its changes: "got" and "try".
  std::string refusal(const std::string& has, const std::string& wants) const;
  /// Throws:  CheckpointError naming every field that has to change
  void check() const;
};
/// The nearest expression of a model, by the family that wants the fewest changes. It never refuses: check()
/// does.
Expression expression_in(const ModelFormat& format, const DecoderOnlyConfig& config);

}  // namespace tapeformer
