#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/attention/pieces/qk_norm.h>

#include <cmath>

namespace tapeformer {

namespace {

class NormedHeads : public AttentionPiece {
 public:
  explicit NormedHeads(const AttentionConfig& config)
      : kind_(config.qk_norm), key_width_(config.key_width), epsilon_(config.qk_norm_epsilon) {
    const auto gain = [](Index size, double value) { return Parameter(Tensor::full({size}, value)); };
    if (kind_ == QkNorm::l2) {
      query_gain_ = gain(config.heads, std::sqrt(static_cast<double>(key_width_)));
      return;
    }
    if (kind_ == QkNorm::plain) return;
    const bool joint = kind_ == QkNorm::joint;
    query_gain_ = gain(joint ? config.heads * key_width_ : key_width_, 1);
    if (!config.shared_keys) key_gain_ = gain(joint ? config.key_heads() * key_width_ : key_width_, 1);
  }

  void change_heads(CallHeads& heads) const override {
    if (kind_ == QkNorm::rms && heads.packed_btn.defined()) {
      heads.packed_btn = packed_head_norms(heads.packed_btn, heads.sizes.heads, heads.sizes.groups,
                                           query_gain_, key_gain_, epsilon_);
      return;
    }
    heads.take_apart();
    heads.query_bthd = normed(heads.query_bthd, query_gain_);
    Tensor& key_bsgd = heads.new_kv.key_bsgd;
    if (key_bsgd.defined()) key_bsgd = normed(key_bsgd, key_gain_);
  }

  void change_scores(AttentionOptions& options, DType /*type*/, Index /*T*/, Index /*S*/) const override {
    if (kind_ == QkNorm::l2)
      options.scale = (options.scale > 0 ? options.scale : 1) / static_cast<double>(key_width_);
  }

  void visit(ParameterVisitor& visitor) override {
    visitor.parameter("query_norm.weight", query_gain_);
    visitor.parameter("key_norm.weight", key_gain_);
  }

 private:
  Tensor normed(const Tensor& x_bthd, const Parameter& gain) const {
    const Index H = x_bthd.size(2);
    if (kind_ == QkNorm::rms) return rms_norm(x_bthd, gain, epsilon_);
    if (kind_ == QkNorm::joint) return split_heads(rms_norm(merge_heads(x_bthd), gain, epsilon_), H);
    const Tensor unit_bthd = rms_norm(x_bthd, {}, epsilon_);  // of length sqrt(D): see change_scores()
    return gain.defined() ? unit_bthd * reshape(gain, {H, 1}) : unit_bthd;
  }

  QkNorm kind_;
  Index key_width_;
  double epsilon_;
  Parameter query_gain_, key_gain_;  // a key's may be undefined
};

}  // namespace

void HeadNorms::describe(const FieldVisitor& in_models, const FieldVisitor& /*in_layers*/) {
  in_models("qk_norm", named(qk_norm),
            "norm of queries and keys (mha, gqa, mqa): none, rms of each head, joint over all heads, l2, or "
            "plain (rms without gains)");
  in_models("qk_norm_epsilon", qk_norm_epsilon, kPositive);
}

MadePiece HeadNorms::make(const AttentionConfig& config, Generator& /*random*/) {
  return config.qk_norm == QkNorm::none ? nullptr : std::make_unique<NormedHeads>(config);
}

void HeadNorms::add_cost(const AttentionConfig& config, CostSum& sum) {
  if (config.qk_norm == QkNorm::none) return;
  const bool has_keys = !config.shared_keys;
  const double H = config.heads, D = config.key_width, G = has_keys ? config.key_heads() : 0;
  const double queries = sum.N * H, keys = sum.M * G;
  const bool joint = config.qk_norm == QkNorm::joint;
  sum.keeps((queries + keys) * D);
  sum.keeps_wide(joint ? sum.N + (has_keys ? sum.M : 0) : queries + keys);
  if (config.qk_norm == QkNorm::rms) {
    sum.parameters(has_keys ? 2 * D : D);
    if (sum.packed) sum.keeps(sum.N * G * config.value_width);
    return;
  }
  sum.packed = false;
  if (config.qk_norm == QkNorm::plain) return;
  sum.parameters(joint ? (H + G) * D : H);
  if (!joint) sum.keeps(queries * D);
}

PieceCases HeadNorms::cases() {
  return {{"multi_head_normed_heads", "mha", [](AttentionConfig& c) { c.qk_norm = QkNorm::rms; }},
          {"multi_head_joint_norm", "mha", [](AttentionConfig& c) { c.qk_norm = QkNorm::joint; }},
          {"grouped_query_l2_norm", "gqa", [](AttentionConfig& c) { c.qk_norm = QkNorm::l2; }},
          {"grouped_query_plain_norm", "gqa", [](AttentionConfig& c) { c.qk_norm = QkNorm::plain; }}};
}

}  // namespace tapeformer
