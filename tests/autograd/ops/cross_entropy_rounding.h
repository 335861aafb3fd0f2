#pragma once

#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/ops/op_case.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {

/// The most by which the loss of linear() and its gradients may be off in f32. A logit is off by
/// e = gamma sum |x w|, its probability by the factor exp(2 max e) and the roundings of its row's sum,
/// dlogits by as much of it; a gradient adds up their errors and has its own roundings.
inline OpResult cross_entropy_rounding(const std::vector<Tensor>& inputs, const Tensor& targets,
                                       const CrossEntropyOptions& options, double dloss) {
  const double u = unit_roundoff(DType::f32);
  const Index rows = targets.elements(), width = inputs[1].size(1), classes = inputs[1].size(0);
  const Tensor ids = targets.to(Device::cpu()), weight = magnitude(inputs[1]),
               x = reshape(magnitude(inputs[0]), {rows, width});
  std::vector<Tensor> here;
  for (const Tensor& input : inputs) here.push_back(input.to(Device::cpu()));
  const bool is_biased = inputs.size() > 2;
  const Tensor logits = linear(reshape(here[0], {rows, width}), here[1], is_biased ? here[2] : Tensor());
  const Tensor off = affine(linear(x, weight, is_biased ? magnitude(here[2]) : Tensor()),
                            gamma_of(width + 4, DType::f32), 0);
  const Tensor size = Tensor::zeros({rows, classes}, DType::f64, Device::cpu()),  // of dlogits
      error = Tensor::zeros({rows, classes}, DType::f64, Device::cpu());
  Index counted = 0;
  for (Index row = 0; row < rows; ++row) counted += ids.at(row) != options.ignored;
  double loss = 0;
  for (Index row = 0; row < rows; ++row) {
    if (ids.at(row) == options.ignored) continue;
    const double *z = logits.data<double>() + row * classes, *e = off.data<double>() + row * classes;
    const double most = *std::max_element(z, z + classes), most_off = *std::max_element(e, e + classes);
    double total = 0, largest = 0;
    for (Index i = 0; i < classes; ++i) {
      total += std::exp(z[i] - most);
      largest = std::max(largest, std::fabs(z[i]));
    }
    // The arguments of exp, its last places, and the sum of them.
    const double of_row = 2 * most_off + 8 * u * largest + gamma_of(classes + 16, DType::f32);
    loss += of_row + gamma_of(rows + classes, DType::f32) * (2 * largest + std::log(total));
    for (Index i = 0; i < classes; ++i) {
      const double p = std::exp(z[i] - most) / total;
      const double q =
          options.smoothing / static_cast<double>(classes) + (i == ids.at(row) ? 1 - options.smoothing : 0);
      const double share = std::fabs(dloss) / static_cast<double>(counted);
      size.data<double>()[row * classes + i] = share * std::fabs(p - q);
      error.data<double>()[row * classes + i] = share * (p * std::expm1(of_row) + 8 * u * (p + q));
    }
  }
  const auto through = [&](Index terms) { return error + affine(size, gamma_of(terms + 8, DType::f32), 0); };
  OpResult bound{
      Tensor::full({}, loss / static_cast<double>(counted), DType::f64, Device::cpu()),
      {reshape(matmul(through(classes), weight), inputs[0].shape()), matmul(transposed(through(rows)), x)}};
  if (is_biased) bound.gradients.push_back(sum(through(rows), {0}));
  return bound;
}

}  // namespace tapeformer
