#pragma once

#include <tapeformer/autograd/tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace tapeformer {

// Textbook formulas as xtensor expressions, in f64 on the CPU.

struct CrossEntropyOptions;
struct OpResult;

/// Softmax of the rows of x [..., N], or its logarithm, and the gradient of x.
OpResult softmax_formula(const Tensor& x, const Tensor& dy, bool logarithm);
/// Layer norm of the rows of x [..., N] if `centred`, else RMS norm, and the gradients of x, weight and bias.
OpResult norm_formula(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& dy,
                      bool centred, double epsilon);
/// The mean cross-entropy of logits [..., N], and their gradient, with the targets as distributions.
OpResult cross_entropy_formula(const Tensor& logits, const Tensor& targets,
                               const CrossEntropyOptions& options, double dloss);
/// "sum", "mean" or "var" over some axes.
Tensor reduction_formula(const std::string& name, const Tensor& x, const std::vector<int>& axes);
/// U f(S) V^T, where x = U S V^T is the singular value decomposition of x [M, N].
Tensor with_singular_values(const Tensor& x, const std::function<double(double)>& f);

}  // namespace tapeformer
