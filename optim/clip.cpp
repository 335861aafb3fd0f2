#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/optim.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/optim/multi_tensor_list.h>
#include <tapeformer/optim/optimizer.h>

#include <cmath>

namespace tapeformer {

double gradient_norm(const std::vector<Parameter>& parameters) {
  MultiTensorList table;
  table.begin("clip");
  Tensor like;
  for (const Parameter& parameter : parameters) {
    if (!parameter.gradient().defined()) continue;
    if (!like.defined()) like = parameter.gradient();
    table.add(parameter, {}, {}, 0);
  }
  table.end();
  if (table.empty()) return 0;
  const Tensor norm = Tensor::empty({1}, DType::f64, like.device()), factor = Tensor::empty_like(norm);
  dispatch(
      "clip",
      [&](auto on, auto* gradient) {
        using T = std::remove_pointer_t<decltype(gradient)>;
        kernels::gradient_norm<T>(on, table.tensors(), 1, 0, norm.address<double>(),
                                  factor.address<double>());
      },
      wide(like));
  return norm.item();
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
