#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/heads.h>

#include <algorithm>
#include <any>
#include <map>

namespace tapeformer {
namespace {

/// A field of for_each_in_layers(), or with `of_models` of for_each(), that is not at its default.
struct ChangedField {
  std::string name, value, by_default;
  const void* member;  ///< none for a Property
};
std::vector<ChangedField> changed_fields(const AttentionConfig& config, bool of_models) {
  std::vector<ChangedField> fields;
  const auto visit = [of_models](const AttentionConfig& c, const auto& f) {
    const FieldVisitor<std::decay_t<decltype(f)>> field{f};
    if (of_models) AttentionConfig::for_each_in_models(c, field);
    AttentionConfig::for_each_in_layers(c, field);
  };
  visit(config, [&](const Field& field, const auto& member) {
    const void* place = &member;  // of a Property, which is a temporary, none
    if constexpr (detail::is_property<std::decay_t<decltype(member)>>) place = nullptr;
    fields.push_back({field.name, value_text(value_of(member)), {}, place});
  });
  auto next = fields.begin();
  visit(AttentionConfig(),
        [&](const Field&, const auto& member) { (next++)->by_default = value_text(value_of(member)); });
  const auto unchanged = [](const ChangedField& field) { return field.value == field.by_default; };
  fields.erase(std::remove_if(fields.begin(), fields.end(), unchanged), fields.end());
  return fields;
}

/// Throws: Error naming a field that other kinds use and `kind` does not, and those kinds
void check_used(const AttentionKind& kind, const AttentionConfig& config) {
  const auto check = [&](const std::string& name, const std::string& value, const std::string& remedy) {
    const std::string kinds = kind_names([&](const AttentionKind& other) { return other.uses(name); });
    if (kind.uses(name) || (kinds.empty() && config.own.count(name) == 0)) return;
    throw Error("[attention] " + name + " is for " + (kinds.empty() ? "no kind that is known" : kinds) +
                "; got attention=" + kind.name + ", " + name + "=" + value + "; try " + remedy);
  };
  for (const auto& [name, value, by_default, member] : changed_fields(config, true))
    check(name, value, name + "=" + by_default);
  for (const auto& [name, value] : config.own) check(name, value_text(value), "it without");
}

/// The value whose name it is. Throws: Error that lists the names
template <class Kind>
Kind kind_named(const char* field, const std::string& name, const char* (*name_of_kind)(Kind),
                std::initializer_list<Kind> kinds) {
  std::string names;
  for (const Kind kind : kinds) {
    if (name == name_of_kind(kind)) return kind;
    names += (names.empty()                ? ""
              : kind == *(kinds.end() - 1) ? " or "
                                           : ", ") +
             std::string(name_of_kind(kind));
  }
  throw Error(std::string(field) + " must be " + names + "; got " + name);
}

}  // namespace

const char* relative_bias_name(RelativeBias bias) {
  constexpr const char* kNames[] = {"none", "alibi", "buckets"};
  return kNames[static_cast<int>(bias)];
}

RelativeBias relative_bias(const std::string& name) {
  return kind_named("relative_bias", name, relative_bias_name,
                    {RelativeBias::none, RelativeBias::alibi, RelativeBias::buckets});
}

const char* weighting_name(AttentionWeighting weighting) {
  return weighting == AttentionWeighting::softmax ? "softmax" : "sigmoid";
}

AttentionWeighting weighting(const std::string& name) {
  return kind_named("weighting", name, weighting_name,
                    {AttentionWeighting::softmax, AttentionWeighting::sigmoid});
}

const char* rotary_layout_name(RotaryLayout layout) {
  return layout == RotaryLayout::interleaved ? "interleaved" : "half_split";
}

RotaryLayout rotary_layout(const std::string& name) {
  return kind_named("rotary_layout", name, rotary_layout_name,
                    {RotaryLayout::interleaved, RotaryLayout::half_split});
}

const char* qk_norm_name(QkNorm norm) {
  constexpr const char* kNames[] = {"none", "rms", "joint", "l2"};
  return kNames[static_cast<int>(norm)];
}

QkNorm qk_norm(const std::string& name) {
  if (name == "false" || name == "true") return name == "true" ? QkNorm::rms : QkNorm::none;
  return kind_named("qk_norm", name, qk_norm_name, {QkNorm::none, QkNorm::rms, QkNorm::joint, QkNorm::l2});
}

const char* output_gate_name(OutputGate gate) {
  constexpr const char* kNames[] = {"none", "head", "element"};
  return kNames[static_cast<int>(gate)];
}

OutputGate output_gate(const std::string& name) {
  return kind_named("output_gate", name, output_gate_name,
                    {OutputGate::none, OutputGate::head, OutputGate::element});
}

const char* latent_form_name(LatentForm form) {
  constexpr const char* kNames[] = {"automatic", "naive", "absorbed"};
  return kNames[static_cast<int>(form)];
}

LatentForm latent_form(const std::string& name) {
  return kind_named("form", name, latent_form_name,
                    {LatentForm::automatic, LatentForm::naive, LatentForm::absorbed});
}

void check_undescribed(const char* model, const AttentionConfig& attention,
                       const std::vector<const void*>& described) {
  for (const auto& [name, value, by_default, member] : changed_fields(attention, false)) {
    if (std::find(described.begin(), described.end(), member) != described.end()) continue;
    throw Error(std::string("[") + model + "] the model decides its attention's " + name + "; got " + name +
                "=" + value + "; try " + name + "=" + by_default);
  }
}

void AttentionConfig::add_positions(PositionKind positions) {
  if (positions == PositionKind::rotary) rotary = true;
  if (positions == PositionKind::alibi) relative_bias = RelativeBias::alibi;
  if (positions == PositionKind::buckets) relative_bias = RelativeBias::buckets;
}

AttentionConfig AttentionConfig::resolved() const {
  const AttentionKind& row = attention_kind(kind);
  check_fields("attention", *this);
  check_used(row, *this);
  const std::string got = "attention=" + kind + ", ";
  const PackedHeads sizes =
      resolved_heads("attention", width, output_width, {heads, key_heads(), key_width, value_width}, got);
  AttentionConfig full = *this;
  full.key_width = sizes.key_width;
  full.value_width = sizes.value_width;
  full.memory_width = or_else(memory_width, width);
  full.value_memory_width = or_else(value_memory_width, full.memory_width);
  full.output_width = or_else(output_width, width);
  full.output_bias = output_bias.value_or(bias);
  full.rotary = rotary && !cross;
  if (rotations.yarn && rotations.original_context == 0) {
    throw Error("[attention] rotary_yarn needs the context of the training that it stretches; got " + got +
                "rotary_original_context=0; try rotary_original_context=4096");
  }
  for (const OwnField& field : row.own) full.own.emplace(field.field.name, field.value);
  if (row.complete) row.complete(full);
  if (!full.rotary) return full;
  if (!(row.can & kCanRotate)) {
    throw Error("[attention] " + row.title +
                " attention cannot turn queries and keys by rotary positions; got " + got +
                "rotary positions; try sinusoidal or learned ones");
  }
  if (rotations.yarn && rotations.original_context == 0) {
    throw Error("[attention] YaRN needs the context that the model was trained with; got " + got +
                "rotary_yarn=true, rotary_original_context=0; try rotary_original_context=4096");
  }
  if (const Index turned = or_else(rotations.width, full.key_width); turned % 2 != 0) {
    throw Error("[attention] rotary positions turn pairs of a head's components; got " + got +
                "components=" + std::to_string(turned) + "; try an even width of the heads");
  }
  return full;
}

AttentionConfig AttentionConfig::of_kind(const std::string& name) const {
  const AttentionKind &own_kind = attention_kind(kind), &other = attention_kind(name);
  const auto drops = [&](const std::string& field) { return own_kind.uses(field) && !other.uses(field); };
  AttentionConfig config = *this;
  config.kind = name;
  std::map<std::string, std::any> defaults;
  const AttentionConfig unchanged;
  for_each_field(unchanged, [&](const Field& field, const auto& member) {
    if (drops(field.name)) defaults[field.name] = std::decay_t<decltype(value_of(member))>(value_of(member));
  });
  for_each_field(config, [&](const Field& field, auto&& member) {
    using Value = std::decay_t<decltype(value_of(member))>;
    constexpr bool is_own = detail::is_property<std::decay_t<decltype(member)>> &&
                            !std::is_same_v<Value, FieldValue<decltype(member)>>;
    if constexpr (!is_own) {
      const auto found = defaults.find(field.name);
      if (found != defaults.end()) set_value(member, std::any_cast<Value>(found->second));
    }
  });
  for (const auto& [field, value] : own)
    if (drops(field)) config.own.erase(field);
  return config;
}

AttentionConfig AttentionConfig::resolved_as(const char* name) const {
  AttentionConfig config = *this;
  config.kind = name;
  return config.resolved();
}

}  // namespace tapeformer
