#include <tapeformer/nn/formats/config_map.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace tapeformer {
namespace {

/// Activations under transformers' names. If one of ours has several, the first is written.
constexpr std::pair<const char*, Unary> kActivations[] = {{"gelu_new", Unary::gelu_tanh},
                                                          {"gelu_pytorch_tanh", Unary::gelu_tanh},
                                                          {"gelu_python_tanh", Unary::gelu_tanh},
                                                          {"gelu", Unary::gelu},
                                                          {"gelu_python", Unary::gelu},
                                                          {"relu", Unary::relu},
                                                          {"relu2", Unary::relu_squared},
                                                          {"silu", Unary::silu},
                                                          {"swish", Unary::silu}};

template <class Holds>
const std::pair<const char*, Unary>* find_activation(const Holds& holds) {
  return std::find_if(std::begin(kActivations), std::end(kActivations), holds);
}

/// Fields of training alone, of the order of rows, and those without effect unless another is set.
constexpr std::initializer_list<const char*> kWithoutEffect = {
    "embedding_dropout", "residual_dropout", "attention_dropout", "feed_forward_dropout", "zero_init",
    "norm_bias",         "qk_norm_epsilon",  "full_attention",    "bias_buckets",         "bias_distance"};

template <class T>
std::optional<T> optional_of(const ConfigMap::Json& value) {
  return value.is_null() ? std::optional<T>() : value.get<T>();
}

}  // namespace

DecoderOnlyConfig ConfigMap::read(Describe describe, JsonFields& file) {
  ConfigMap map{DecoderOnlyConfig()};
  map.reads = &file;
  describe(map);
  return map.model;
}

void ConfigMap::write(Describe describe, const DecoderOnlyConfig& model, Json& file) {
  ConfigMap map(model);
  map.writes = &file;
  describe(map);
}

DecoderOnlyConfig ConfigMap::fit(Describe describe, const DecoderOnlyConfig& model) {
  ConfigMap map(model);
  map.fits = true;
  map.has(kWithoutEffect);
  describe(map);
  const DecoderOnlyConfig unchanged;
  for (const ConfigField& field : fields_of(unchanged))
    if (!map.has_field(field.name)) map.ours(field.name).set(field.value());
  return map.model;
}

ConfigField& ConfigMap::ours(const std::string& name) {
  return *std::find_if(list_.begin(), list_.end(),
                       [&](const ConfigField& field) { return field.name == name; });
}

bool ConfigMap::has_field(const std::string& name) const {
  return ours_.count(name) > 0 || ours_.count(name.substr(0, name.find('_')) + "_*") > 0;
}

void ConfigMap::field(const char* theirs, const char* name, const Json& otherwise) {
  has({name});
  ConfigField& field = ours(name);
  if (writes) std::visit([&](const auto& value) { (*writes)[theirs] = value; }, *field.value());
  if (!reads) return;
  if (std::holds_alternative<bool>(field.zero()))
    field.set(reads->flag(theirs, otherwise.get<bool>()));
  else if (std::holds_alternative<Index>(field.zero()))
    field.set(reads->size(theirs, optional_of<Index>(otherwise)));
  else if (field.rule.holds == kBelowOne.holds)
    field.set(reads->rate(theirs, otherwise.get<double>()));
  else
    field.set(reads->number(theirs, optional_of<double>(otherwise)));
}

void ConfigMap::fixed(const char* name, const FieldValue& value) {
  has({name});
  if (!writes) ours(name).set(value);
}

void ConfigMap::demand(const char* theirs, const Json& value) {
  if (reads) reads->demand(theirs, value);
}

void ConfigMap::ignore(std::initializer_list<const char*> theirs) {
  if (reads) reads->ignore(theirs);
}

void ConfigMap::activation(const char* theirs, const char* otherwise, bool gated) {
  has({"gated", "activation"});
  const auto named = [](const std::string& name) {
    return find_activation([&](const auto& row) { return name == row.first; });
  };
  const Unary usual = named(otherwise)->second;
  if (reads) {
    const std::string name = reads->text(theirs, otherwise);
    const auto found = named(name);
    if (found == std::end(kActivations))
      reads->fail(theirs, "= " + name + " changes the arithmetic and is not implemented");
    model.activation = found->second;
  }
  const auto is_ours = [&](const auto& row) { return row.second == model.activation; };
  if (writes) (*writes)[theirs] = model.activation == usual ? otherwise : find_activation(is_ours)->first;
  if (fits && model.gated != gated) model.activation = usual;
  model.gated = gated;
}

void ConfigMap::hidden_width(const char* theirs, Index times) {
  has({"feed_forward"});
  const Index usual = times * model.width;
  if (reads) model.feed_forward = reads->size(theirs, usual > 0 ? std::optional(usual) : std::nullopt);
  if (writes) (*writes)[theirs] = model.hidden_width();
}

}  // namespace tapeformer
