#include <tapeformer/nn/formats/config_map.h>

#include <algorithm>
#include <iterator>
#include <optional>

namespace tapeformer {
namespace {

/// Activations by transformers' names. If one of ours has several, the first is written.
constexpr struct Activation {
  const char *theirs, *ours;
} kActivations[] = {{"gelu_new", "gelu_tanh"},
                    {"gelu_pytorch_tanh", "gelu_tanh"},
                    {"gelu_python_tanh", "gelu_tanh"},
                    {"gelu", "gelu"},
                    {"gelu_python", "gelu"},
                    {"relu", "relu"},
                    {"relu2", "relu_squared"},
                    {"silu", "silu"},
                    {"swish", "silu"}};

/// The first row with this name, or the end.
const Activation* find_activation(const char* Activation::*whose, const std::string& name) {
  return std::find_if(std::begin(kActivations), std::end(kActivations),
                      [&](const auto& row) { return name == row.*whose; });
}

/// Fields that only affect training or the order of rows, or have no effect unless another is set.
constexpr std::initializer_list<const char*> kWithoutEffect = {
    "dropout",   "embedding_dropout", "residual_dropout", "attention_dropout", "feed_forward_dropout",
    "zero_init", "norm_bias",         "qk_norm_epsilon",  "full_attention",    "bias_buckets",
    "packed",    "bias_distance",     "swiglu_alpha"};

template <class T>
std::optional<T> optional_of(const FieldMap::Json& value) {
  return value.is_null() ? std::optional<T>() : value.get<T>();
}

}  // namespace

template <class Config>
Config ConfigMapOf<Config>::read(Describe describe, JsonFields& file) {
  ConfigMapOf map{Config()};
  map.reads = &file;
  describe(map);
  return map.model;
}

template <class Config>
void ConfigMapOf<Config>::write(Describe describe, const Config& model, Json& file) {
  ConfigMapOf map(model);
  map.writes = &file;
  describe(map);
}

template <class Config>
Config ConfigMapOf<Config>::fit(Describe describe, const Config& model) {
  ConfigMapOf map(model);
  map.fits = true;
  map.has(kWithoutEffect);
  describe(map);
  const Config unchanged;
  for (const ConfigField& field : fields_of(unchanged))
    if (!map.has_field(field.name)) map.ours(field.name).set(field.value());
  return map.model;
}

template class ConfigMapOf<DecoderOnlyConfig>;
template class ConfigMapOf<EncoderDecoderConfig>;

ConfigField* FieldMap::find(const std::string& name) {
  const auto found =
      std::find_if(list_.begin(), list_.end(), [&](const ConfigField& field) { return field.name == name; });
  return found == list_.end() ? nullptr : &*found;
}

bool FieldMap::has_field(const std::string& name) const {
  return ours_.count(name) > 0 || ours_.count(name.substr(0, name.find('_')) + "_*") > 0;
}

void FieldMap::field(const char* theirs, const char* name, const Json& otherwise) {
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

void FieldMap::size(const char* theirs, const char* name, Index resolved, Index otherwise) {
  has({name});
  if (reads) ours(name).set(reads->size(theirs, otherwise > 0 ? std::optional(otherwise) : std::nullopt));
  if (writes) (*writes)[theirs] = resolved;
}

void FieldMap::fixed(const char* name, const FieldValue& value) {
  has({name});
  if (!writes) ours(name).set(value);
}

void FieldMap::demand(const char* theirs, const Json& value) {
  if (reads) reads->demand(theirs, value);
}

void FieldMap::ignore(std::initializer_list<const char*> theirs) {
  if (reads) reads->ignore(theirs);
}

void FieldMap::activation(const char* theirs, const char* otherwise, bool gated) {
  has({"gated", "activation"});
  ConfigField &activation = ours("activation"), *const gating = find("gated");
  const std::string usual = find_activation(&Activation::theirs, otherwise)->ours;
  if (reads) {
    const std::string name = reads->text(theirs, otherwise);
    const auto found = find_activation(&Activation::theirs, name);
    if (found == std::end(kActivations))
      reads->fail(theirs, "= " + name + " changes the arithmetic and is not implemented");
    activation.set(std::string(found->ours));
  }
  const std::string now = activation.text();
  if (writes) (*writes)[theirs] = now == usual ? otherwise : find_activation(&Activation::ours, now)->theirs;
  if (!gating) return;
  if (fits && std::get<bool>(*gating->value()) != gated) activation.set(usual);
  gating->set(gated);
}

}  // namespace tapeformer
