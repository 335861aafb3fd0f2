#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/attention/pieces/value_residual.h>

namespace tapeformer {
namespace {

class MixedValues : public AttentionPiece {
 public:
  void change_heads(CallHeads& heads) const override {
    const Tensor& first_bsge = heads.context.first_values;
    if (!first_bsge.defined()) throw Error("[multi_head] value_residual needs first_values in the context");
    heads.take_apart();
    Tensor& value_bsge = heads.new_kv.value_bsge;
    const auto factor = [&](Index i) { return slice(factors_, 0, i, 1); };
    if (value_bsge.defined()) value_bsge = factor(0) * value_bsge + factor(1) * first_bsge;
  }
  void visit(ParameterVisitor& visitor) override { visitor.parameter("value_residual", factors_); }

 private:
  Parameter factors_ = Parameter(Tensor::full({2}, 0.5));  // m
};

}  // namespace

void ValueResidual::describe(const FieldVisitor& /*in_models*/, const FieldVisitor& in_layers) {
  in_layers("value_residual", value_residual);
}

void ValueResidual::complete(AttentionConfig& config) {
  if (config.value_residual && config.shared_keys)
    throw Error("[attention] a layer with shared_keys has no values of its own; got attention=" +
                config.kind + ", shared_keys=true, value_residual=true; try value_residual=false");
}

MadePiece ValueResidual::make(const AttentionConfig& config, Generator& /*random*/) {
  return config.value_residual ? std::make_unique<MixedValues>() : nullptr;
}

void ValueResidual::add_cost(const AttentionConfig& config, CostSum& sum) {
  if (!config.value_residual) return;
  const double G = config.key_heads(), E = config.value_width;
  sum.packed = false;
  sum.parameters(2);
  sum.keeps(2 * sum.M * G * E + 2);
}

PieceCases ValueResidual::cases() {
  return {{"multi_head_value_residual", "mha", [](AttentionConfig& c) { c.value_residual = true; }}};
}

}  // namespace tapeformer
