#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/gated.h>
#include <tapeformer/nn/feed_forward.h>

namespace tapeformer {

std::vector<std::string> activations() {
  std::vector<std::string> names;
  for (const Unary f : kUnaries)
    if (is_activation(f)) names.emplace_back(name_of(f));
  return names;
}

Unary activation_named(const std::string& name) {
  for (const Unary f : kUnaries)
    if (is_activation(f) && name == name_of(f)) return f;
  throw Error("[feed_forward] the activation must be " + alternatives(activations()) + "; got " + name);
}

Property named(Unary& activation) {
  Property property([&activation] { return std::string(name_of(activation)); },
                    [&activation](const std::string& name) { activation = activation_named(name); });
  property.choices = activations();
  return property;
}

void SwigluLimit::describe(const FieldVisitor& field) {
  field("swiglu_limit", limit,
        "with swiglu, a bound of both halves, (min(max(b, -limit), limit) + 1) f(min(a, limit)) with f(a) = "
        "a sigmoid(alpha a), as in gpt-oss; 0 for none",
        kNotNegative);
  field("swiglu_alpha", alpha, "alpha of swiglu_limit", kPositive);
}

void SwigluLimit::check(Unary activation, bool gated) const {
  if (limit > 0 && (!gated || activation != Unary::silu))
    throw Error(format(
        "[feed_forward] swiglu_limit bounds gated silu; got swiglu_limit={}, activation={}, gated={}; try "
        "swiglu_limit=0",
        value_text(limit), name_of(activation), gated));
}

Tensor FeedForwardConfig::gate(const Tensor& up) const {
  return swiglu.limit > 0 ? gated_within(swiglu.limit, swiglu.alpha, up) : tapeformer::gated(activation, up);
}

FeedForward::FeedForward(const FeedForwardConfig& config, Generator& random)
    : config_(config),
      up_({config.width, config.hidden_width() * (config.gated ? 2 : 1), config.bias,
           config.gated ? std::optional<Unary>() : config.activation},
          random),
      down_({config.hidden_width(), config.width, config.bias, {}}, random),
      dropout_({config.dropout}, random) {
  config.swiglu.check(config.activation, config.gated);
}

Tensor FeedForward::operator()(const Tensor& x) const {
  const Tensor up = up_(x);
  return down_(dropout_(config_.gated ? config_.gate(up) : up));
}

void FeedForward::visit(ParameterVisitor& visitor) {
  visitor.child("up", up_);
  if (config_.gated) {
    const Index hidden = up_.weight().value().size(0) / 2;
    visitor.row_parts("up.weight", {hidden, hidden});
  }
  visitor.child("down", down_);
  visitor.child("dropout", dropout_);
}

}  // namespace tapeformer
