#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/optimizer.h>

#include <functional>
#include <vector>

namespace tapeformer {

struct ScheduleFreeConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;  ///< no option: the models' norms have --epsilon
  double weight_decay = 0.01;
  std::function<bool(const Parameter&)> decays = has_rank_two;  ///< asked once, at construction

  void describe(const FieldVisitor& field) {
    field("weight_decay", weight_decay, "decay of matrices", kNotNegative);
    field("beta1", beta1, "weight of the average in the weights that are trained, above 0", kBelowOne);
    field("beta2", beta2, "decay of the second moment", kBelowOne);
  }
};

/// AdamW whose average of weights x stands in for a schedule that falls: the learning rate rises in a warm-up
/// and stays. Gradients are taken at y, where a model trains; exchange_weights() gives x, where it is
/// evaluated.
/// Math:    v = beta2 v + (1 - beta2) g^2;  r = lr sqrt(1 - beta2^t), where t counts this parameter's steps
///          z = z - r (g / (sqrt(v) + epsilon) + decay y)
///          x = (1 - c) x + c z, with c = r^2 / (the sum of r^2 over the steps up to this one)
///          y = (1 - beta1) z + beta1 x
///          State is v and d = z - y, 0 at first; x = y - (1 - beta1) / beta1 d.
/// Source:  Defazio et al. 2024, arXiv:2405.15682, algorithm 1
class ScheduleFreeAdamW : public Optimizer {
 public:
  using Config = ScheduleFreeConfig;
  /// Throws: Error naming a field of the config that does not keep its rule
  explicit ScheduleFreeAdamW(std::vector<Parameter> parameters, const ScheduleFreeConfig& config = {});
  bool exchange_weights() override;
  void visit_state(OptimizerVisitor& visitor) override;

 private:
  void gather(double learning_rate, MultiTensorList& table) override;
  void update(const kernels::StepTensors& tensors, const Tensor& factor) override;
  void count_step() override { totals_ = next_totals_; }
  std::vector<Tensor> averages() const;

  /// Of a parameter's steps.
  struct Totals {
    std::int64_t steps = 0;
    double weights = 0;  // sum of r^2
  };
  ScheduleFreeConfig config_;
  std::vector<Tensor> differences_, second_moments_;
  std::vector<Totals> totals_, next_totals_;         // after the step that was gathered
  std::vector<double> decays_;                       // weight decay of each parameter
  std::vector<kernels::ScheduleFreeStep> settings_;  // of this step
  std::vector<Tensor> trained_;                      // y, while the parameters are x
};

}  // namespace tapeformer
