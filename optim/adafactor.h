#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/autograd/kernels/adafactor.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/optimizer.h>

#include <functional>
#include <vector>

namespace tapeformer {

struct AdafactorConfig {
  double beta2_decay = 0.8;
  double update_clip = 1;
  double least_scale = 1e-3;
  double weight_decay = 0;
  double epsilon = 0;  ///< 0 for that of the parameters' type; no option: the models' norms have --epsilon
  std::function<bool(const Parameter&)> decays = has_rank_two;  ///< asked once, at construction

  void describe(const FieldVisitor& field) {
    field("weight_decay", weight_decay, "decay of matrices", kNotNegative);
    field("beta2_decay", beta2_decay, "e of the decay of the second moment, 1 - t^-e in step t",
          kNotNegative);
    field("update_clip", update_clip, "largest root mean square of a parameter's update", kPositive);
    field("least_scale", least_scale, "smallest scale of a parameter, which else is its root mean square",
          kNotNegative);
  }
};

/// Adam's second moment of a matrix [R, C] from sums over its rows and its columns: state of R + C numbers,
/// and no first moment. The learning rate is relative to each parameter's own size, and at most 1 / sqrt(t).
/// Math:    b = t^-e, where e is beta2_decay and t counts this parameter's steps
///          r = r + b (mean over columns of g^2 - r);  c = c + b (mean over rows of g^2 - c)
///          v = r c / max(mean of r, epsilon); of a vector, v + b (g^2 - v)
///          u = g / sqrt(max(v, epsilon^2));  size = max(least_scale, rms(x)) min(lr, 1 / sqrt(t))
///          x = x (1 - lr decay) - size u / max(1, rms(u) / update_clip)
///          A parameter of more than two axes is as many matrices as the first ones have elements.
/// Source:  Shazeer and Stern 2018, arXiv:1804.04235, algorithms 4 and 5, in the form of
///          torch.optim.Adafactor
class Adafactor : public Optimizer {
 public:
  using Config = AdafactorConfig;
  /// Throws: Error naming a field of the config that does not keep its rule, or a parameter that ranks divide
  explicit Adafactor(std::vector<Parameter> parameters, const AdafactorConfig& config = {});
  void visit_state(OptimizerVisitor& visitor) override;

 private:
  void gather(double learning_rate, MultiTensorList& table) override;
  void update(const kernels::StepTensors& tensors, const Tensor& factor) override;
  void count_step() override;

  /// Of a matrix its rows' and columns' variances, of a vector its elements' in the first.
  struct State {
    Tensor first, second;
    std::int64_t steps = 0;
    bool decays = false;
  };
  /// A parameter of the step that was gathered.
  struct Step {
    std::size_t parameter;
    kernels::AdafactorTensor tensor;
    kernels::AdafactorStep settings;
  };
  template <class T>
  kernels::AdafactorTensor kernel_tensor(std::size_t i) const;

  AdafactorConfig config_;
  std::vector<State> states_;
  std::vector<Step> gathered_;
};

}  // namespace tapeformer
