#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/head_norms.h>

#include <cmath>

namespace tapeformer {

HeadNorms::HeadNorms(const AttentionConfig& config)
    : kind_(config.qk_norm),
      heads_(config.heads),
      groups_(config.key_heads()),
      key_width_(config.key_width),
      epsilon_(config.qk_norm_epsilon) {
  if (kind_ == QkNorm::none) return;
  const auto gain = [](Index size, double value) { return Parameter(Tensor::full({size}, value)); };
  if (kind_ == QkNorm::l2) {
    query_gain_ = gain(heads_, std::sqrt(static_cast<double>(key_width_)));
    return;
  }
  const bool joint = kind_ == QkNorm::joint;
  query_gain_ = gain(joint ? heads_ * key_width_ : key_width_, 1);
  if (!config.shared_keys) key_gain_ = gain(joint ? groups_ * key_width_ : key_width_, 1);
}

Tensor HeadNorms::normed(const Tensor& x, Index heads, const Parameter& gain) const {
  switch (kind_) {
    case QkNorm::rms: return rms_norm(split_heads(x, heads), gain, epsilon_);
    case QkNorm::joint: return split_heads(rms_norm(x, gain, epsilon_), heads);
    case QkNorm::l2: {  // of length sqrt(D), which scale() makes up for
      const Tensor unit_bthd = rms_norm(split_heads(x, heads), {}, epsilon_);
      return gain.defined() ? unit_bthd * reshape(gain, {heads, 1}) : unit_bthd;
    }
    case QkNorm::none: break;
  }
  return split_heads(x, heads);
}

Tensor HeadNorms::query(const Tensor& x) const { return normed(x, heads_, query_gain_); }
Tensor HeadNorms::key(const Tensor& x) const { return normed(x, groups_, key_gain_); }

Tensor HeadNorms::packed(const Tensor& x) const {
  if (kind_ == QkNorm::none) return x;
  return packed_head_norms(x, heads_, groups_, query_gain_, key_gain_, epsilon_);
}

void HeadNorms::visit(ParameterVisitor& visitor) {
  visitor.parameter("query_norm.weight", query_gain_);
  visitor.parameter("key_norm.weight", key_gain_);
}

double HeadNorms::parameters(const AttentionConfig& config) {
  const double H = config.heads, G = config.shared_keys ? 0 : config.key_heads(), D = config.key_width;
  switch (config.qk_norm) {
    case QkNorm::rms: return config.shared_keys ? D : 2 * D;
    case QkNorm::joint: return (H + G) * D;
    case QkNorm::l2: return H;
    case QkNorm::none: break;
  }
  return 0;
}

double HeadNorms::activations(const AttentionConfig& config, double N, double M) {
  const double H = config.heads, D = config.key_width;
  const double keys = config.shared_keys ? 0 : M * config.key_heads();
  switch (config.qk_norm) {
    case QkNorm::rms:
      return (N * H + keys) * (D + 1) + (config.packed ? N * config.key_heads() * config.value_width : 0);
    case QkNorm::joint: return N * H * D + N + keys * D + (config.shared_keys ? 0 : M);
    case QkNorm::l2: return (N * H + keys) * (D + 1) + N * H * D;
    case QkNorm::none: break;
  }
  return 0;
}

}  // namespace tapeformer
