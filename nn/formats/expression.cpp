#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/expression.h>

#include <cmath>
#include <functional>

namespace tapeformer {
namespace {

bool is_gpt2_family(const HuggingFaceFamily& family) { return family.type == std::string("gpt2"); }

Unary usual_activation(const HuggingFaceFamily& family) {
  return is_gpt2_family(family) || family.gemma > 0 ? Unary::gelu_tanh : Unary::silu;
}

void express_heads(DecoderOnlyConfig& model, const HuggingFaceFamily& family) {
  AttentionConfig& attention = model.attention;
  model.attention_pattern.clear();
  const bool can_export = attention_kind(attention.kind).can & kCanExport;
  if (!can_export || (is_gpt2_family(family) && model.attention_config().resolved().groups > 0))
    attention = attention.of_kind("mha");
  attention.output_gate = OutputGate::none;
  attention.weighting = AttentionWeighting::softmax;
  attention.exclusive = attention.learned_softcap = attention.sinks = false;
  if (family.gemma != 2) attention.softcap = 0;
  attention.qk_norm = family.qk_norm;
  if (family.qk_norm != QkNorm::none) model.epsilon = attention.qk_norm_epsilon;
  if (const Index rest = model.width % attention.heads; rest != 0) model.width += attention.heads - rest;
  const Index head_width = attention.key_width > 0 ? attention.key_width : model.width / attention.heads;
  if (family.gemma == 0) attention.score_scale = 0;
  if (family.gemma > 0 && query_scalar(attention.score_scale) == 0)
    attention.score_scale = 1 / std::sqrt(static_cast<double>(head_width));
  if (!attention.rotations.yarn) attention.rotations.attention_factor = 1;
  if (is_gpt2_family(family)) {
    if (head_width * attention.heads != model.width) attention.key_width = 0;
    return;
  }
  if (head_width % 2 != 0) attention.key_width = head_width + 1;  // of pairs to turn
  if (attention.rotations.width != head_width) attention.rotations.width = 0;
  if (!family.attention_bias) attention.bias = family.query_bias;
  const bool output_bias = attention.bias && !family.query_bias;
  if (attention.output_bias.value_or(attention.bias) != output_bias) attention.output_bias = output_bias;
}

void express_windows(DecoderOnlyConfig& model, const HuggingFaceFamily& family) {
  if (!family.window) model.window = 0;
  if (!family.windows) model.windows.clear();
  const RotaryConfig& rotations = model.attention.rotations;
  const bool is_scaled = rotations.factor != 1 || rotations.original_context > 0;
  if (family.gemma != 3) model.window_rotary_base = 0;
  if (family.gemma == 3 && model.window > 0 && is_scaled && model.window_rotary_base == 0)
    model.window_rotary_base = rotations.base;
}

/// The model with as few changes as let the family express it.
DecoderOnlyConfig expressed(DecoderOnlyConfig model, const HuggingFaceFamily& family) {
  const bool is_gpt2 = is_gpt2_family(family);
  express_heads(model, family);
  express_windows(model, family);
  model.norm = is_gpt2 ? NormKind::layer : NormKind::rms;
  model.sublayer_norms = family.norms;
  model.positions = is_gpt2 ? PositionKind::learned : PositionKind::rotary;
  if (model.gated == is_gpt2) model.activation = usual_activation(family);
  model.gated = !is_gpt2;
  if (!is_gpt2 && !family.mlp_bias) model.feed_forward_bias = false;
  model.embedding_scale = family.gemma > 0 ? 0 : 1;
  if (family.gemma == 0) model.logit_softcap = 0;
  model.prefix = model.head_bias = model.value_residual = false;
  model.embedding_norm = false;
  model.value_embeddings = ValueEmbeddings::none;
  model.kv_sharing = 1;
  model.short_convolution = 0;
  return model;
}

/// Without the fields that only the attention of `model` has.
std::vector<FieldChange> changes_between(const DecoderOnlyConfig& model, const DecoderOnlyConfig& other) {
  std::vector<FieldChange> changes;
  const FieldList has = fields_of(model), wants = fields_of(other);
  for (std::size_t i = 0; i < has.size(); ++i)
    if (wants[i].value() && has[i].value() != wants[i].value())
      changes.push_back({has[i].name, has[i].text(), wants[i].text()});
  return changes;
}

/// How much a family would change: little by a number, or by the activation that comes with another gating.
std::size_t distance(const std::vector<FieldChange>& changes) {
  std::size_t sum = 0;
  for (const FieldChange& change : changes)
    sum += change.field == "activation" || change.field == "epsilon" ? 1 : 2;
  return sum;
}

/// Among the first `families`, which near(family) changes the model for; the first of several.
Expression nearest_expression(const char* format, const DecoderOnlyConfig& config,
                              const std::function<DecoderOnlyConfig(const HuggingFaceFamily&)>& near,
                              std::size_t families) {
  Expression best{format, nullptr, {}, {}};
  for (std::size_t i = 0; i < families; ++i) {
    const HuggingFaceFamily& family = hugging_face_families().at(i);
    const DecoderOnlyConfig model = near(family);
    std::vector<FieldChange> changes = changes_between(config, model);
    if (best.family == nullptr || distance(changes) < distance(best.changes))
      best = {format, &family, model, std::move(changes)};
  }
  return best;
}

}  // namespace

std::string Expression::refusal(const std::string& has, const std::string& wants) const {
  return std::string("[export] ") + format + " has no such model; " + family->title + " differs least; got " +
         has + "; try " + wants;
}

void Expression::check() const {
  if (changes.empty()) return;
  std::string has, wants;
  for (const FieldChange& change : changes) {
    const char* const comma = has.empty() ? "" : ", ";
    has += comma + change.field + "=" + change.has;
    wants += comma + change.field + "=" + change.wants;
  }
  throw CheckpointError(refusal(has, wants));
}

Expression expression_in_transformers(const DecoderOnlyConfig& config) {
  return nearest_expression(
      "transformers", config, [&](const HuggingFaceFamily& family) { return expressed(config, family); },
      hugging_face_families().size());
}

Expression expression_in_gguf(const DecoderOnlyConfig& config) {
  const auto near = [&](const HuggingFaceFamily& family) {
    DecoderOnlyConfig model = config;
    model.attention.rotations.yarn = false;
    model = expressed(model, family);
    model.activation = usual_activation(family);
    return model;
  };
  return nearest_expression("gguf", config, near, 2);  // gpt2 and llama, the first ones of the table
}

Index query_scalar(double score_scale) {
  const double n = std::round(1 / (score_scale * score_scale));
  return n < 1e9 && 1 / std::sqrt(n) == score_scale ? static_cast<Index>(n) : 0;
}

}  // namespace tapeformer
