#pragma once

#include <tapeformer/autograd/parameter.h>

#include <vector>

namespace tapeformer {

/// The Euclidean norm of all gradients together, summed in double; parameters without one count as zero.
double gradient_norm(const std::vector<Parameter>& parameters);

/// Scales the gradients so that their common norm is at most `max_norm`, and returns the norm before. When
/// that is not finite the gradients stay as they are: the caller decides what a diverged step means.
/// Math:    g = g min(1, max_norm / (norm + 1e-6))
/// Source:  Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063; the 1e-6 is torch.nn.utils.clip_grad_norm_'s
double clip_gradient_norm(const std::vector<Parameter>& parameters, double max_norm);

}  // namespace tapeformer
