#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/optim/parameter_group.h>

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <sstream>

namespace tapeformer {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw Error(format(
      "a group is PATTERN:NAME=NUMBER,... with rate, optimizer=KIND and options of that kind, each once; "
      "got \"{}\"; try \"embedding.*:rate=0.3,weight_decay=0\"",
      text));
}

/// The shortest text that is parsed to the same number, in any locale.
std::string digits_of(double number) {
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof(digits), number).ptr);
}

double number_in(const std::string& digits, const std::string& text) {
  double number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [read, error] = std::from_chars(digits.data(), end, number);
  if (digits.empty() || error != std::errc() || read != end || !std::isfinite(number)) refuse(text);
  return number;
}

std::string names_of(const std::vector<Parameter>& parameters) {
  constexpr std::size_t kMost = 40;
  const std::vector<Parameter> shown(parameters.begin(),
                                     parameters.begin() + std::min(kMost, parameters.size()));
  return joined(shown, ", ", &Parameter::name) + (parameters.size() > kMost ? ", ..." : "");
}

}  // namespace

bool ParameterGroup::matches(const Parameter& parameter) const {
  return fnmatch(pattern.c_str(), parameter.name().c_str(), 0) == 0;
}

ParameterGroup parameter_group_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == 0 || colon == std::string::npos) refuse(text);
  ParameterGroup group;
  group.pattern = text.substr(0, colon);
  std::istringstream settings(text.substr(colon + 1));
  std::set<std::string> given;
  for (std::string setting; std::getline(settings, setting, ',');) {
    const std::size_t equals = setting.find('=');
    if (equals == 0 || equals == std::string::npos) refuse(text);
    const std::string name = setting.substr(0, equals), value = setting.substr(equals + 1);
    if (!given.insert(name).second) refuse(text);
    if (name == "optimizer") {
      if (value.empty()) refuse(text);
      group.optimizer = value;
    } else if (name == "rate") {
      group.rate = number_in(value, text);
      if (group.rate < 0) refuse(text);
    } else {
      group.options.insert_or_assign(name, number_in(value, text));
    }
  }
  if (given.empty()) refuse(text);
  return group;
}

std::vector<ParameterGroup> parameter_groups_of(const std::vector<std::string>& texts) {
  std::vector<ParameterGroup> groups;
  for (const std::string& text : texts) groups.push_back(parameter_group_of(text));
  return groups;
}

std::vector<std::string> texts_of(const std::vector<ParameterGroup>& groups) {
  std::vector<std::string> texts;
  for (const ParameterGroup& group : groups) {
    std::string text = group.pattern + ":rate=" + digits_of(group.rate);
    if (!group.optimizer.empty()) text += ",optimizer=" + group.optimizer;
    for (const auto& [name, value] : group.options) text += "," + name + "=" + digits_of(value);
    texts.push_back(text);
  }
  return texts;
}

std::vector<std::vector<Parameter>> grouped(const std::vector<Parameter>& parameters,
                                            const std::vector<ParameterGroup>& groups) {
  std::vector<std::vector<Parameter>> parts(groups.size() + 1);
  for (const Parameter& parameter : parameters) {
    const auto found = std::find_if(groups.begin(), groups.end(),
                                    [&](const ParameterGroup& group) { return group.matches(parameter); });
    parts[static_cast<std::size_t>(found - groups.begin())].push_back(parameter);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!parts[i].empty()) continue;
    throw Error(format("a group must match a parameter that no group before it has; got {}; the names are {}",
                       groups[i].pattern, names_of(parameters)));
  }
  return parts;
}

void freeze(const std::vector<Parameter>& parameters, const std::vector<std::string>& patterns) {
  std::vector<Parameter> left = parameters;
  for (const std::string& pattern : patterns) {
    const auto matches = [group = ParameterGroup{pattern}](const Parameter& x) { return group.matches(x); };
    if (std::none_of(parameters.begin(), parameters.end(), matches))
      throw Error(format("[freeze] a pattern must match a parameter; got {}; the names are {}", pattern,
                         names_of(parameters)));
    left.erase(std::remove_if(left.begin(), left.end(), matches), left.end());
  }
  if (!patterns.empty() && trainable(left).empty())
    throw Error("[freeze] some parameters must be left to train; got patterns that match all; try fewer");
  for (Parameter parameter : parameters)
    if (std::find(left.begin(), left.end(), parameter) == left.end()) parameter.set_trainable(false);
}

std::vector<Parameter> trainable(std::vector<Parameter> parameters) {
  const auto is_frozen = [](const Parameter& parameter) { return !parameter.trainable(); };
  parameters.erase(std::remove_if(parameters.begin(), parameters.end(), is_frozen), parameters.end());
  return parameters;
}

}  // namespace tapeformer
