#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/optim.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/optim/optimizer.h>

#include <cmath>
#include <numeric>

namespace tapeformer {

double gradient_norm(const std::vector<Parameter>& parameters) {
  TensorList gradients;
  for (const Parameter& parameter : parameters) {
    if (const Tensor gradient = parameter.gradient(); gradient.defined()) gradients.push_back(gradient);
  }
  if (gradients.empty()) return 0;
  const Tensor sums = Tensor::empty({static_cast<Index>(gradients.size()), kernels::kSquareParts}, DType::f64,
                                    gradients[0].device());
  double* to = sums.address<double>();
  for (const Tensor& gradient : gradients) {
    require_same_device("clip", "gradient", gradient, sums);
    dispatch(
        "clip", [&](auto on, auto* g) { kernels::sum_of_squares(on, gradient.elements(), g, to); },
        wide(gradient));
    to += kernels::kSquareParts;
  }
  const Tensor here = sums.to(Device::cpu());  // the one wait
  double sum = 0;
  for (Index i = 0; i < sums.size(0); ++i) {
    const double* parts = here.data<double>() + i * kernels::kSquareParts;
    sum += std::accumulate(parts, parts + kernels::kSquareParts, 0.0);
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
