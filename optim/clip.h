#pragma once

#include <tapeformer/autograd/parameter.h>
#include <tapeformer/optim/multi_tensor_list.h>

#include <vector>

namespace tapeformer {

/// The norm of a list's gradients and their factor, f64 [1] on their device; both 0 for an empty list.
struct GradientNorm {
  Tensor norm;    ///< times the share
  Tensor factor;  ///< kernels::step_factor()
};
/// Queues the kernel. `like` has the gradients' type and device.
GradientNorm gradient_norm(const MultiTensorList& list, const Tensor& like, double share = 1,
                           double max_norm = 0);

/// The Euclidean norm of all gradients together, summed in double; parameters without one count as zero.
/// Throws: Error if ranks have divided a gradient between them (DataParallelConfig::shard_optimizer)
double gradient_norm(const std::vector<Parameter>& parameters);

/// Scales the gradients so that their common norm is at most `max_norm` (0: no limit), and returns the norm
/// before. If that is not finite they stay as they are, and the caller decides what to do about the step.
/// Optimizer::clipped_step() saves this pass over all gradients.
/// Math:    gradient min(1, max_norm / (norm + 1e-6))
/// Throws:  Error for a negative max_norm or NaN
/// Source:  Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063; the 1e-6 is torch.nn.utils.clip_grad_norm_'s
double clip_gradient_norm(const std::vector<Parameter>& parameters, double max_norm);

}  // namespace tapeformer
