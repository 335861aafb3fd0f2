#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/autograd/kernels/muon.h>
#include <tapeformer/optim/optimizer.h>

#include <cmath>
#include <vector>

namespace tapeformer {

/// The rule for numbers of steps.
inline constexpr NumberRule kStepCount{"must be a whole number from 1 to 99",
                                       [](double x) { return x >= 1 && x <= 99 && x == std::floor(x); }};

struct MuonConfig {
  double momentum = 0.95;
  bool nesterov = true;  ///< whether the gradient is added to the momentum once more, as Nesterov does
  double weight_decay = 0.1;
  /// Root mean square to which an update is scaled, about 0.2 for AdamW's; 0 scales by max(1, rows /
  /// columns)^(1/2).
  double update_rms = 0;
  double newton_schulz_steps = 5;
  double epsilon = 1e-7;  ///< the smallest norm by which a matrix is divided
  /// Each part is orthogonalised separately. A parameter that is not named is one matrix.
  RowParts row_parts = {};

  void describe(const FieldVisitor& field) {
    field("momentum", momentum, "share of the last momentum that is kept", kBelowOne);
    field("weight_decay", weight_decay, "decay of hidden matrices", kNotNegative);
    field("update_rms", update_rms,
          "scales the update of [rows, columns] by this times sqrt(max(rows, columns)), so that it moves "
          "elements by about this times the learning rate (0.2 is usual for AdamW); 0 scales by sqrt(max(1, "
          "rows / columns))",
          kNotNegative);
    field("newton_schulz_steps", newton_schulz_steps, "steps that make an update orthogonal", kStepCount);
  }
};

/// Orthogonalised momentum, for the matrices of hidden layers; MuonAdamW also optimizes the others.
/// Math:    m = m + (1 - mu) (g - m);  u = g + mu (m - g), or without Nesterov m
///          u = newton_schulz(u), of each part of a parameter's rows (see kernels::newton_schulz)
///          x = x (1 - lr decay) - lr s u, with s = sqrt(max(1, rows / columns)) or
///          update_rms sqrt(max(rows, columns)) of that part
/// Source:  Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks", in the order of
///          torch.optim.Muon; update_rms: Liu et al. 2025, arXiv:2502.16982
/// On a CPU everything is in the parameters' type. On a GPU products are in bf16 where operations read the
/// parameters in bf16, else in the parameters' type (of f32, TF32 where that is allowed).
class Muon : public Optimizer {
 public:
  using Config = MuonConfig;
  /// Throws: Error naming a parameter that is not a matrix or whose parts do not add up, or a field of the
  ///         config that breaks its rule
  explicit Muon(std::vector<Parameter> parameters, const MuonConfig& config = {});
  void visit_state(OptimizerVisitor& visitor) override;
  /// Throws: Error if ranks divide the optimizer's work: a rank would see parts of matrices
  void set_shards(const DataParallel& ranks) override;

 private:
  /// The updates of all matrices of one shape, one after the other, in one tensor.
  struct Stack {
    Index rows, columns, count = 0;
    Tensor updates;
  };
  /// A matrix: the rows of a parameter from `row` on.
  struct Part {
    std::size_t parameter;
    Index row;
    std::size_t stack;
    Index place;  // in the stack
  };

  void add_parts(std::size_t parameter);
  void gather(double learning_rate, MultiTensorList& table) override;
  void update(const kernels::StepTensors& tensors, const Tensor& factor) override;

  MuonConfig config_;
  std::vector<Tensor> momenta_;
  std::vector<Stack> stacks_;
  std::vector<Part> parts_;
  std::vector<kernels::MuonStep> settings_;  // of this step, one per stack
};

}  // namespace tapeformer
