#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tensor.h>
#include <tapeformer/tests/reference/check_below.h>
#include <tapeformer/tests/reference/seed.h>

#include <string>
#include <vector>

namespace tapeformer {

/// f64 values, for cases worked by hand.
inline Tensor values(const std::vector<double>& elements, const Shape& shape) {
  return Tensor::from(elements, shape);
}
inline Tensor values(const std::vector<double>& elements) { return Tensor::from(elements); }

inline Tensor random_normal(const Shape& shape, Generator& random, DType type = DType::f64) {
  return Tensor::randn(shape, random, type);
}
inline Tensor random_uniform(const Shape& shape, double low, double high, Generator& random,
                             DType type = DType::f64) {
  const Tensor x = Tensor::empty(shape, type);
  random.fill_uniform(x, low, high);
  return x;
}
/// Independent booleans, half of them true.
inline Tensor random_mask(const Shape& shape, Generator& random) {
  const Tensor x = Tensor::empty(shape, DType::boolean);
  for (Index i = 0; i < x.elements(); ++i) x.data<bool>()[i] = random.below(2) == 1;
  return x;
}
/// Ids in [0, end).
inline Tensor random_ids(const Shape& shape, Index end, Generator& random) {
  const Tensor ids = Tensor::empty(shape, DType::i32);
  for (Index i = 0; i < ids.elements(); ++i)
    ids.data<std::int32_t>()[i] = static_cast<std::int32_t>(random.below(end));
  return ids;
}

inline std::vector<double> elements(const Tensor& x) { return x.to_vector<double>(); }

/// The message of the E that `action` throws, or what happened instead.
template <class E, class F>
std::string message_of(F&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another type: ") + error.what();
  }
  return "nothing was thrown";
}

/// The element of `x` that broadcasting puts at `position` of `result`.
inline double broadcast_at(const Tensor& x, const Shape& result, Index position) {
  Index own = 0, stride = 1;
  for (int axis = result.rank() - 1; axis >= 0; --axis) {
    const Index at = position % result[axis];
    position /= result[axis];
    const int own_axis = axis - (result.rank() - x.rank());
    if (own_axis < 0) continue;
    if (x.size(own_axis) > 1) own += at * stride;
    stride *= x.size(own_axis);
  }
  return x.at(own);
}

/// y[i] = f(i), as f64.
template <class F>
Tensor filled(const Shape& shape, const F& f) {
  const Tensor y = Tensor::empty(shape, DType::f64);
  for (Index i = 0; i < y.elements(); ++i) y.data<double>()[i] = f(i);
  return y;
}

/// The larger one, or NaN if one is NaN, which std::max would pass over.
double larger(double a, double b);
/// max |a - b| / max |b|: the error of one tensor against its reference. 0 if there is no difference, NaN if
/// one tensor holds a NaN. Throws: ShapeError if the shapes differ.
double relative_error(const Tensor& a, const Tensor& b);
/// sqrt(sum (a - b)^2 / sum b^2), to compare two ways of rounding: a maximum of one draw is luck.
double rms_error(const Tensor& a, const Tensor& b);
/// max |a - b|, for values that are zero in theory.
double absolute_error(const Tensor& a, const Tensor& b);

}  // namespace tapeformer
