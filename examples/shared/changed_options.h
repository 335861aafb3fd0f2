#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/expression.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// A model's options, each with the one that a format wants instead.
using OptionChanges = std::vector<std::pair<std::string, std::string>>;

/// The changes that a format wants of a model, as options, or as fields of config.json if there is no option.
/// `now` and `then` are a program's options for the model and for the changed one; `others` are the names of
/// options, by field, that differ from the field's name.
OptionChanges changed_options(const std::vector<FieldChange>& changes, const FieldList& now,
                              const FieldList& then, const std::map<std::string, std::string>& others);
template <class Options, class Config>
OptionChanges changed_options(const Config& config, const ExpressionOf<Config>& expression,
                              const std::map<std::string, std::string>& others) {
  Options now, then;
  now.model = config, then.model = expression.nearest;
  return changed_options(expression.changes, fields_of(now), fields_of(then), others);
}
/// The options that the format wants: "--activation silu --norm layer".
std::string wants_text(const OptionChanges& changes);
/// Throws: CheckpointError with `remedy` and the options that the format wants, unless it can hold the model
template <class Options, class Config>
void require_expressed(const ModelFormatOf<Config>& format, const Config& config,
                       const std::map<std::string, std::string>& others, const std::string& remedy = {}) {
  const ExpressionOf<Config> expression = expression_in(format, config);
  if (expression.changes.empty()) return;
  const OptionChanges changes = changed_options<Options>(config, expression, others);
  const std::string wants = remedy + "a model trained with " + wants_text(changes);
  throw CheckpointError(expression.refusal(joined(changes, ", ", &OptionChanges::value_type::first), wants));
}

}  // namespace tapeformer
