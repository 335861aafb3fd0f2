#pragma once

#include <tapeformer/autograd/kernels/optim.h>

namespace tapeformer::kernels {

/// m = m + (1 - momentum) (g - m) and u = g + momentum (m - g), where g = factor gradient, m is state1 and u
/// state2; without `nesterov` u = m. A NaN factor changes nothing.
TAPEFORMER_KERNEL(muon_momentum, const StepTensors& all, double momentum, bool nesterov,
                  const double* factor);

/// `count` matrices of one shape, one after the other, and how they are made orthogonal.
struct NewtonSchulz {
  Index count = 0, rows = 0, columns = 0;
  int steps = 5;
  double epsilon = 1e-7;  ///< the smallest norm that is divided by
  bool narrow = false;    ///< on a GPU: in bf16
};
/// The coefficients a, b and c of a step, by Keller Jordan.
constexpr double kQuintic[] = {3.4445, -4.7750, 2.0315};

/// Singular values s > 0 of each matrix x become about 1.
/// Math:    x = x / max(|x|, epsilon), with |x| the root of the sum of squares; then, `steps` times,
///          A = x x^T, x = a x + (b A + c A^2) x; with x^T x from the right where that is smaller
TAPEFORMER_KERNEL(newton_schulz, const NewtonSchulz& sizes, T* x);

/// The settings of matrices of one shape.
struct MuonStep {
  double learning_rate;  ///< of the update, with the factor of the shape
  double weight_decay;   ///< times the learning rate
};

/// x = x (1 - weight_decay) - learning_rate u, with u in state2; also writes the shadow. A NaN factor changes
/// nothing; any other one is not used here.
TAPEFORMER_KERNEL(muon_step, const StepTensors& all, const MuonStep* steps, Index step_count,
                  const double* factor);

}  // namespace tapeformer::kernels
