#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/kernels/optim.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/optim/optimizer.h>

namespace tapeformer {

GradientNorm gradient_norm(const MultiTensorList& list, const Tensor& like, double share, double max_norm) {
  if (list.empty()) {
    const Tensor zero = Tensor::zeros({1}, DType::f64, like.device());
    return {zero, zero};
  }
  const Tensor norm = Tensor::empty({1}, DType::f64, like.device()), factor = Tensor::empty_like(norm);
  dispatch("gradient_norm", operands(wide(like)), [&](auto on, auto* gradient) {
    using T = std::remove_pointer_t<decltype(gradient)>;
    count_bytes("gradient_norm", list.tensors().elements * Index{sizeof(T)});
    kernels::gradient_norm<T>(on, list.tensors(), share, max_norm, norm.address<double>(),
                              factor.address<double>());
  });
  return {norm, factor};
}

double gradient_norm(const std::vector<Parameter>& parameters) {
  MultiTensorList list;
  list.begin("clip");
  Tensor like;
  for (const Parameter& parameter : parameters) {
    const Tensor gradient = parameter.gradient();
    if (!gradient.defined()) continue;
    if (!is_updated_whole(parameter))
      throw Error(
          format("[clip] no rank knows the norm of a gradient that is divided between ranks; got "
                 "gradient={}; try Optimizer::clipped_step()",
                 gradient.describe()));
    if (!like.defined()) like = gradient;
    list.add(gradient);
  }
  list.end();
  return list.empty() ? 0 : gradient_norm(list, like).norm.item();
}

double clip_gradient_norm(const std::vector<Parameter>& parameters, double max_norm) {
  if (!(max_norm >= 0))
    throw Error(format("[clip] max_norm must be at least 0; got {}; try 0 for no limit", max_norm));
  const double norm = gradient_norm(parameters), factor = kernels::step_factor(norm, 1, max_norm);
  if (!(factor < 1)) return norm;
  for (const Parameter& parameter : parameters) {
    const Tensor gradient = parameter.gradient();
    dispatch("scale_gradients", operands(wide(gradient)),
             [&](auto on, auto* g) { kernels::scale_in_place(on, gradient.elements(), factor, g); });
  }
  return norm;
}

}  // namespace tapeformer
