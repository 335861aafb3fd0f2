#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/optim.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/optim/optimizer.h>

#include <cmath>

namespace tapeformer {

double gradient_norm(const std::vector<Parameter>& parameters) {
  double sum = 0;
  for (const Parameter& parameter : parameters) {
    const Tensor gradient = parameter.gradient();
    dispatch(
        "clip", [&](auto on, auto* g) { sum += kernels::sum_of_squares(on, gradient.elements(), g); },
        gradient);
  }
  return std::sqrt(sum);
}

double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return std::isfinite(norm) && factor < 1 ? factor : 1;
}

double clip_gradient_norm(const std::vector<Parameter>& parameters, double max_norm) {
  const double norm = gradient_norm(parameters);
  const double factor = clip_factor(norm, max_norm);
  if (factor < 1) scale_gradients(parameters, factor);
  return norm;
}

}  // namespace tapeformer
