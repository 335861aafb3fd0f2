#pragma once

#include <tapeformer/autograd/config/own_fields.h>
#include <tapeformer/autograd/parameter.h>

#include <string>
#include <vector>

namespace tapeformer {

/// Parameters that are optimized differently from the rest.
struct ParameterGroup {
  std::string pattern;         ///< of names, as for files: * is any text, ? any character, [ab] one of these
  std::string optimizer = "";  ///< its kind; empty for that of the rest
  double rate = 1;             ///< multiplies the learning rate of the rest
  OwnValues options = {};      ///< others are those of the rest, or with another kind its defaults

  /// True if the pattern matches the parameter's name.
  bool matches(const Parameter& parameter) const;
};

/// Parses "embedding.*:rate=0.3,weight_decay=0" or "head.*:optimizer=sgd,momentum=0.9".
/// Throws: Error that shows the form
ParameterGroup parameter_group_of(const std::string& text);
std::vector<ParameterGroup> parameter_groups_of(const std::vector<std::string>& texts);
/// Texts that parameter_groups_of() reads to the same bits.
std::vector<std::string> texts_of(const std::vector<ParameterGroup>& groups);

/// The parameters of each group, and then the rest. A parameter belongs to the first group that matches it.
/// Throws: Error that lists names if a group has none
std::vector<std::vector<Parameter>> grouped(const std::vector<Parameter>& parameters,
                                            const std::vector<ParameterGroup>& groups);

/// Freezes the parameters whose names match one of `patterns`, written as in ParameterGroup: they get no
/// gradients, and keep their values.
/// Throws: Error that lists names if a pattern matches none, Error if nothing is left to train
void freeze(const std::vector<Parameter>& parameters, const std::vector<std::string>& patterns);
/// The parameters that are not frozen, for an optimizer.
std::vector<Parameter> trainable(std::vector<Parameter> parameters);

}  // namespace tapeformer
