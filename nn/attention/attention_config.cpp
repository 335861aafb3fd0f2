#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/heads.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// Throws: Error naming a field that other kinds use and `kind` does not, and those kinds
void check_used(const AttentionKind& kind, const AttentionConfig& config) {
  const auto check = [&](const std::string& name, const std::string& value, const std::string& remedy) {
    const std::string kinds = kind_names([&](const AttentionKind& other) { return other.uses(name); });
    if (kind.uses(name) || (kinds.empty() && config.own.count(name) == 0)) return;
    throw Error(format("[attention] {} is for {}; got attention={}, {}={}; try {}", name,
                       kinds.empty() ? "no known kind" : kinds, kind.name, name, value, remedy));
  };
  const AttentionConfig unchanged;
  const FieldList fields = fields_of(config), defaults = fields_of(unchanged);
  for (const auto& [field, usual] : changed_fields(fields, defaults))
    check(field->name, field->text(), field->name + "=" + usual->text());
  for (const auto& [name, value] : config.own) check(name, value_text(value), "leaving it out");
}

}  // namespace

void check_embedded(const char* model, const FieldList& fields, const AttentionConfig& attention) {
  const AttentionConfig unchanged;
  const FieldList own = fields_of(attention), defaults = fields_of(unchanged);
  for (const auto& [field, usual] : changed_fields(own, defaults)) {
    const auto is_same = [&field = *field](const ConfigField& other) {
      return field.member() ? other.member() == field.member() : other.name == field.name;
    };
    if (std::any_of(fields.begin(), fields.end(), is_same)) continue;
    throw Error(format("[{}] the model decides its attention's {}; got {}={}; try {}={}", model, field->name,
                       field->name, field->text(), field->name, usual->text()));
  }
}

void AttentionConfig::describe_in_models(const FieldVisitor& field, unsigned can, unsigned cannot) {
  field("attention",
        Property([this] { return kind; },
                 [this](const std::string& name) {
                   attention_kind(name);
                   kind = name;
                 }),
        kind_titles(can, cannot).c_str());
  field("heads", heads, "H, attention heads", kPositiveSize);
  field("groups", groups,
        "G, heads of keys and values with gqa (0: at most half of H), differential or nsa (0: all)", kSize)
      .follows_kind = true;
  const FieldVisitor in_latent = field.in_part("latent attention (mla)");
  in_latent("latent_width", latent_width, "width of mla's compressed keys and values; 0 for C / 2", kSize);
  in_latent("query_latent_width", query_latent_width, "width of mla's compressed queries; 0 for none", kSize);
  in_latent("rotary_width", rotary_width, "width of mla's rotary keys; 0 for half of a head", kSize);
  in_latent("shared_key_rotation", shared_key_rotation,
            "rotate the part of mla's keys that heads share by positions");
  in_latent(
      "index_top_k", index_top_k,
      "keys to which mla attends for each token, chosen by an indexer (DeepSeek sparse attention); 0 for "
      "all, without an indexer; as many as the context to train it on all",
      kSize);
  in_latent("index_heads", index_heads, "heads of mla's indexer; 0 for a fourth of heads", kSize);
  in_latent("index_width", index_width, "width of their queries and keys; 0 for that of a head", kSize);
  in_latent("index_loss", index_loss, "weight of the loss by which the indexer follows attention's weights",
            kNotNegative);
  in_latent("index_rotary_layout", named(index_rotary_layout));
  field("score_scale", score_scale, kNotNegative);
  field("head_norm_gain", head_norm_gain);
  field("head_norm_epsilon", head_norm_epsilon, kPositive);
  FieldList others;
  AttentionPieces::Fields::describe(field.in_part(kMultiHeadPart), FieldVisitor(others));
  field.in_part(kPositionsPart)("rotary_base", rotations.base, "base of the rotary frequencies", kPositive);
  field("rotary_layout", named(rotations.layout));
  field("rotary_components", rotations.width, kSize);
  field("rotary_max_positions", rotations.max_positions, kSize);
  field("rotary_factor", rotations.factor, kPositive);
  field("rotary_original_context", rotations.original_context, kSize);
  field("rotary_low_frequency", rotations.low_frequency);
  field("rotary_high_frequency", rotations.high_frequency);
  field("rotary_yarn", rotations.yarn);
  field("rotary_whole_pairs", rotations.whole_pairs);
  field("rotary_attention_factor", rotations.attention_factor, kPositive);
  field("rotary_reversed", rotations.reversed);
  describe_own_fields(attention_kinds(), kind, attention_kind, own,
                      field.in_part("other kinds of attention"));
}

void AttentionConfig::describe_in_layers(const FieldVisitor& field) {
  field("width", width, kSize);
  field("memory_width", memory_width, kSize);
  field("value_memory_width", value_memory_width, kSize);
  field("output_width", output_width, kSize);
  field("key_width", key_width, kSize);
  field("value_width", value_width, kSize);
  field("dropout", dropout, kBelowOne);
  field("output_dropout", output_dropout, kBelowOne);
  field("bias", bias);
  field("output_bias", output_bias);
  field("cross", cross);
  field("rotary", rotary);
  field("packed", packed);
  field("sequence_first", sequence_first);
  field("norm", norm);
  field("shared_keys", shared_keys);
  field("lambda_initial", lambda_initial);
  field("form", named(form));
  FieldList others;
  AttentionPieces::Fields::describe(FieldVisitor(others), field);
}

void AttentionConfig::add_positions(PositionKind positions) {
  if (positions == PositionKind::rotary) rotary = true;
  if (positions == PositionKind::alibi) relative_bias = RelativeBias::alibi;
  if (positions == PositionKind::buckets) relative_bias = RelativeBias::buckets;
  const auto refuse = [&](const std::string& rule, const char* remedy) {
    throw Error(format("[attention] {}; got attention={}; try {}", rule, kind, remedy));
  };
  const auto is_biased = [](const AttentionKind& other) { return other.uses("relative_bias"); };
  const AttentionKind& row = attention_kind(kind);
  if (relative_bias != RelativeBias::none && !is_biased(row))
    refuse(format("positions={} are for {}", name_of(positions), kind_names(is_biased)), "positions=learned");
  if (positions != PositionKind::none || !row.uses("rotary_width")) return;
  if (index_top_k > 0) refuse(format("index_top_k={} is for rotary positions", index_top_k), "index_top_k=0");
  if (!shared_key_rotation) return;
  if (rotary_width > 0)
    refuse(format("rotary_width={} is for rotary positions", rotary_width), "rotary_width=0");
  cross = true;  // without rotary keys
}

AttentionConfig AttentionConfig::resolved() const {
  const AttentionKind& row = attention_kind(kind);
  check_fields("attention", fields_of(*this));
  check_used(row, *this);
  const PackedHeads sizes =
      resolved_heads("attention", width, output_width, {heads, key_heads(), key_width, value_width},
                     format("attention={}, ", kind));
  AttentionConfig full = *this;
  full.key_width = sizes.key_width;
  full.value_width = sizes.value_width;
  full.memory_width = or_else(memory_width, width);
  full.value_memory_width = or_else(value_memory_width, full.memory_width);
  full.output_width = or_else(output_width, width);
  full.output_bias = output_bias.value_or(bias);
  full.rotary = rotary && !cross;
  if (rotations.yarn && rotations.original_context == 0)
    throw Error(
        format("[attention] rotary_yarn needs the context of the run that it stretches; got attention={}, "
               "rotary_original_context=0; try rotary_original_context=4096",
               kind));
  for (const OwnField& field : row.own) full.own.emplace(field.field.name, field.value);
  if (row.complete) row.complete(full);
  if (full.rotary && !(row.can & kCanRotate))
    throw Error(format(
        "[attention] {} attention cannot rotate queries and keys by rotary positions; got attention={}, "
        "rotary positions; try sinusoidal or learned ones",
        row.title, kind));
  return full;
}

AttentionConfig AttentionConfig::of_kind(const std::string& name) const {
  if (name == kind) return *this;
  const AttentionKind &own_kind = attention_kind(kind), &other = attention_kind(name);
  const auto drops = [&](const std::string& field) { return own_kind.uses(field) && !other.uses(field); };
  AttentionConfig config = *this, unchanged;
  config.kind = unchanged.kind = name;
  const FieldList defaults = fields_of(unchanged);
  FieldList fields = fields_of(config);
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (drops(fields[i].name)) fields[i].set(defaults[i].value());
  return config;
}

}  // namespace tapeformer
