#include <tapeformer/tests/reference/support.h>

#include <cmath>

namespace tapeformer {

double larger(double a, double b) { return b > a || std::isnan(b) ? b : a; }

double absolute_error(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) {
    throw ShapeError("[error] shapes must match; got a=" + a.describe() + ", b=" + b.describe());
  }
  const Tensor here = a.to(Device::cpu()), expected = b.to(Device::cpu());
  double error = 0;
  for (Index i = 0; i < b.elements(); ++i) {
    if (here.at(i) != expected.at(i)) error = larger(error, std::fabs(here.at(i) - expected.at(i)));
  }
  return error;
}

double relative_error(const Tensor& a, const Tensor& b) {
  const double error = absolute_error(a, b);
  const Tensor expected = b.to(Device::cpu());
  double largest = 0;
  for (Index i = 0; i < b.elements(); ++i) largest = larger(largest, std::fabs(expected.at(i)));
  return error == 0 ? 0 : error / largest;
}

double rms_error(const Tensor& a, const Tensor& b) {
  const Tensor here = a.to(Device::cpu()), expected = b.to(Device::cpu());
  double errors = 0, squares = 0;
  for (Index i = 0; i < b.elements(); ++i) {
    errors += std::pow(here.at(i) - expected.at(i), 2);
    squares += std::pow(expected.at(i), 2);
  }
  return errors == 0 ? 0 : std::sqrt(errors / squares);
}

}  // namespace tapeformer
