#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/attention/pieces/value_residual.h>

namespace tapeformer {
namespace {

class MixedValues : public AttentionPiece {
 public:
  void change_heads(CallHeads& heads) const override {
    const Tensor& first_bsge = heads.context.first_values;
    if (!first_bsge.defined()) throw Error("[multi_head] value_residual needs first_values in the context");
    Tensor& value_bsge = heads.new_kv.value_bsge;
    if (heads.packed_btn.defined())
      heads.packed_btn = mixed(heads.packed_btn, first_bsge);
    else if (value_bsge.defined())
      value_bsge = split_heads(mixed(merge_heads(value_bsge), first_bsge), value_bsge.size(2));
  }
  void visit(ParameterVisitor& visitor) override { visitor.parameter("value_residual", factors_); }

 private:
  /// Values are the last columns of x.
  Tensor mixed(const Tensor& x, const Tensor& first_bsge) const {
    return weighted_sum(x, merge_heads(first_bsge), factors_);
  }

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
  const double H = config.heads, G = config.key_heads(), D = config.key_width, E = config.value_width;
  sum.parameters(2);
  sum.keeps((sum.packed ? sum.N * (H + G) * D : 0) + 2 * sum.M * G * E);
}

PieceCases ValueResidual::cases() {
  return {{"multi_head_value_residual", "mha", [](AttentionConfig& c) { c.value_residual = true; }}};
}

}  // namespace tapeformer
