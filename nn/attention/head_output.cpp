#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/head_output.h>
#include <tapeformer/nn/initialization.h>

namespace tapeformer {
namespace {

constexpr double kLeastSquare = 1e-24;  // added to a value's mean square, so that a zero makes no NaN

}  // namespace

Tensor without_own_value(const Tensor& y, const Tensor& values) {
  const Index B = y.size(0), T = y.size(1), H = y.size(2), E = y.size(3), G = values.size(2);
  const Tensor y_btgre = reshape(y, {B, T, G, H / G, E});
  // r = v sqrt(E) / |v|: the part along it is r mean(y r).
  const Tensor own_btg1e = reshape(rms_norm(values, {}, kLeastSquare), {B, T, G, 1, E});
  const Tensor along_btgr1 = mean(y_btgre * own_btg1e, {-1}, true);
  return reshape(y_btgre - own_btg1e * along_btgr1, y.shape());
}

HeadGates::HeadGates(const AttentionConfig& config, Generator& random) {
  if (config.output_gate == OutputGate::none) return;
  const Index width = config.output_gate == OutputGate::head ? 1 : config.value_width;
  gate_.emplace(LinearConfig{config.width, config.heads * width, false, Unary::sigmoid}, random);
  xavier_uniform(gate_->weight(), random);
}

Tensor HeadGates::operator()(const Tensor& heads, const Tensor& x) const {
  if (!gate_) return heads;
  const Tensor gates_btn = (*gate_)(x);
  return heads * reshape(gates_btn, {heads.size(0), heads.size(1), heads.size(2), -1});
}

void HeadGates::visit(ParameterVisitor& visitor) {
  if (gate_) visitor.child("gate", *gate_);
}

}  // namespace tapeformer
