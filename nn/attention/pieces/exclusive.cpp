#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/attention/pieces/exclusive.h>

namespace tapeformer {
namespace {

constexpr double kLeastSquare = 1e-24;  // added to a value's mean square, so that zeros do not give NaN

class ExclusiveOutputs : public AttentionPiece {
 public:
  /// Values are copied out of packed rows before the scores are computed, so that the scores' gradient is
  /// written first and theirs is added to it.
  void change_heads(CallHeads& heads) const override {
    require_self_attention("multi_head", "exclusive is", heads.is_self);
    heads.own_value_bsge = heads.value();
  }
  Tensor change_output(const Tensor& y_bthe, const CallHeads& heads) const override {
    return without_own_value(y_bthe, heads.own_value_bsge);
  }
};

}  // namespace

Tensor without_own_value(const Tensor& y, const Tensor& values) {
  const Index B = y.size(0), T = y.size(1), H = y.size(2), E = y.size(3), G = values.size(2);
  const Tensor y_btgre = reshape(y, {B, T, G, H / G, E});
  // r = v sqrt(E) / |v|: the part along it is r mean(y r).
  const Tensor own_btg1e = reshape(rms_norm(values, {}, kLeastSquare), {B, T, G, 1, E});
  const Tensor along_btgr1 = mean(y_btgre * own_btg1e, {-1}, true);
  return reshape(y_btgre - own_btg1e * along_btgr1, y.shape());
}

void Exclusive::describe(const FieldVisitor& in_models, const FieldVisitor& /*in_layers*/) {
  in_models("exclusive", exclusive,
            "remove from each head's output its part along the token's own value (mha, gqa, mqa)");
}

void Exclusive::complete(AttentionConfig& config) { config.exclusive = config.exclusive && !config.cross; }

MadePiece Exclusive::make(const AttentionConfig& config, Generator& /*random*/) {
  return config.exclusive ? std::make_unique<ExclusiveOutputs>() : nullptr;
}

void Exclusive::add_cost(const AttentionConfig& config, CostSum& sum) {
  if (!config.exclusive) return;
  const double H = config.heads, G = config.key_heads(), E = config.value_width;
  sum.keeps(sum.N * (H * E + H + G * E) + (sum.packed ? sum.N * G * E : 0));
  sum.keeps_wide(sum.N * G);
}

PieceCases Exclusive::cases() {
  return {{"grouped_query_exclusive", "gqa",
           [](AttentionConfig& c) {
             c.exclusive = true;
             c.value_width += 2;  // narrow values may be so short that norms divide by almost nothing
           },
           true}};
}

}  // namespace tapeformer
