#pragma once

#include <tapeformer/autograd/parameter.h>

#include <vector>

namespace tapeformer {

/// The Euclidean norm of all gradients together, summed in double; parameters without one count as zero.
double gradient_norm(const std::vector<Parameter>& parameters);

/// What gradients of that norm are multiplied by so that it is at most `max_norm`; 1 when it is, or is not
/// finite: the caller decides what a diverged step means.
/// Math:    min(1, max_norm / (norm + 1e-6))
/// Source:  Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063; the 1e-6 is torch.nn.utils.clip_grad_norm_'s
double clip_factor(double norm, double max_norm);

/// Scales the gradients so that their common norm is at most `max_norm`, and returns the norm before. An
/// optimizer's step saves this pass over all gradients when clip_factor() is given to it instead.
double clip_gradient_norm(const std::vector<Parameter>& parameters, double max_norm);

}  // namespace tapeformer
