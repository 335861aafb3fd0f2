#include <tapeformer/autograd/error.h>
#include <tapeformer/tests/reference/rounding.h>
#include <tapeformer/tests/reference/support.h>

#include <cmath>

namespace tapeformer {

double unit_roundoff(DType type) {
  return type == DType::f64 ? 0x1p-53 : type == DType::bf16 ? 0x1p-8 : 0x1p-24;
}

double gamma_of(Index roundings, DType type) {
  const double share = static_cast<double>(roundings) * unit_roundoff(type);
  return share / (1 - share);
}

double over_bound(const Tensor& a, const Tensor& b, const Tensor& bound) {
  if (a.shape() != b.shape() || a.shape() != bound.shape()) {
    throw ShapeError("[over_bound] shapes must match; got a=" + a.describe() + ", b=" + b.describe() +
                     ", bound=" + bound.describe());
  }
  const Tensor got = a.to(Device::cpu()), exact = b.to(Device::cpu()), most = bound.to(Device::cpu());
  double worst = 0;
  for (Index i = 0; i < got.elements(); ++i) {
    if (got.at(i) == exact.at(i)) continue;
    const double share = std::fabs(got.at(i) - exact.at(i)) / most.at(i);
    if (share > worst || std::isnan(share)) worst = share;
    if (std::isnan(worst)) break;
  }
  return worst;
}

Tensor magnitude(const Tensor& x) {
  const Tensor here = x.to(Device::cpu());
  const Tensor y = Tensor::empty(x.shape(), DType::f64, Device::cpu());
  for (Index i = 0; i < x.elements(); ++i) y.data<double>()[i] = std::fabs(here.at(i));
  return y;
}

}  // namespace tapeformer
