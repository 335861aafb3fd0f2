#pragma once

#include <doctest/doctest.h>
#include <tapeformer/autograd/gradcheck/gradcheck.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/tests/reference/check_gradients.h>
#include <tapeformer/tests/reference/golden.h>
#include <tapeformer/tests/reference/rounding.h>
#include <tapeformer/tests/reference/support.h>
#include <tapeformer/tests/reference/threads.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace tapeformer {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline Tensor integers(const std::vector<std::int32_t>& elements, const Shape& shape) {
  return Tensor::from(elements, shape);
}
inline std::vector<std::int32_t> integers_of(const Tensor& x) { return x.to_vector<std::int32_t>(); }
/// Ids in [0, end), a third of them -1.
inline Tensor ids_with_gaps(const Shape& shape, Index end, Generator& random) {
  const Tensor ids = random_ids(shape, end, random);
  for (Index i = 1; i < ids.elements(); i += 3) ids.data<std::int32_t>()[i] = -1;
  return ids;
}
inline Tensor booleans(const std::vector<int>& elements, const Shape& shape) {
  const Tensor x = Tensor::empty(shape, DType::boolean);
  for (Index i = 0; i < x.elements(); ++i) x.data<bool>()[i] = elements[static_cast<std::size_t>(i)] != 0;
  return x;
}

inline std::vector<Tensor> in_type(std::vector<Tensor> list, DType type) {
  for (Tensor& x : list) x = x.to(type);
  return list;
}

/// An output and the gradients of sum(output * seed); of a `recorded` pass, in plain operations.
struct OpResult {
  Tensor y;
  std::vector<Tensor> gradients;
};
using Op = std::function<Tensor(const std::vector<Tensor>&)>;

inline OpResult run_op(const Op& op, const std::vector<Tensor>& inputs, const Tensor& seed,
                       bool recorded = false) {
  Tape tape;
  std::vector<Tensor> leaves;  // the inputs themselves stay unknown to this tape
  for (const Tensor& x : inputs) {
    leaves.push_back(x.detach());
    tape.watch(leaves.back());
  }
  OpResult result;
  result.y = op(leaves);
  result.gradients = tape.gradients(result.y, leaves, seed.to(result.y.dtype()), recorded);
  return result;
}

/// Each element of the output and the gradients is within `bound` of `exact`.
inline void check_within(const OpResult& got, const OpResult& exact, const OpResult& bound) {
  CHECK_BELOW(over_bound(got.y, exact.y, bound.y), 1);
  for (std::size_t i = 0; i < exact.gradients.size(); ++i) {
    CAPTURE(i);
    CHECK_BELOW(over_bound(got.gradients[i], exact.gradients[i], bound.gradients[i]), 1);
  }
}

inline void check_same_bits(const OpResult& got, const OpResult& expected) {
  CHECK(elements(got.y) == elements(expected.y));
  for (std::size_t i = 0; i < expected.gradients.size(); ++i)
    CHECK(elements(got.gradients[i]) == elements(expected.gradients[i]));
}

/// The errors are at most three times those of `plain`, in the mean square.
inline void check_as_exact_as(const OpResult& plain, const OpResult& got, const OpResult& exact) {
  const auto check = [](const Tensor& found, const Tensor& other, const Tensor& expected) {
    CHECK_BELOW(rms_error(found.to(DType::f64), expected), 3 * rms_error(other.to(DType::f64), expected));
  };
  check(got.y, plain.y, exact.y);
  for (std::size_t i = 0; i < exact.gradients.size(); ++i)
    check(got.gradients[i], plain.gradients[i], exact.gradients[i]);
}

/// run() gives the same bits on one thread, on two and on five.
template <class Run>
void check_on_any_threads(const Run& run) {
  std::vector<OpResult> results;
  for (const int threads : {1, 2, 5}) {
    const Threads set(threads);
    results.push_back(run());
  }
  for (const OpResult& other : results) check_same_bits(other, results[0]);
}

/// Compares `op`, in f64 and in f32, with an f64 result found in another way, and gradients that are added to
/// those of another use.
inline void check_op(const Op& op, const std::vector<Tensor>& inputs, const Tensor& seed,
                     const OpResult& expected, double tolerance = 1e-11, double tolerance_f32 = 1e-5) {
  for (const DType type : {DType::f64, DType::f32}) {
    CAPTURE(name_of(type));
    const std::vector<Tensor> converted = in_type(inputs, type);
    const OpResult got = run_op(op, converted, seed);
    const double most = type == DType::f64 ? tolerance : tolerance_f32;
    CHECK(got.y.dtype() == type);
    CHECK_BELOW(relative_error(got.y, expected.y), most);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      CAPTURE(i);
      CHECK_BELOW(relative_error(got.gradients[i], expected.gradients[i]), most);
    }
    const OpResult twice = run_op([&](const auto& in) { return add(op(in), op(in)); }, converted, seed);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      CHECK_BELOW(relative_error(twice.gradients[i], add(expected.gradients[i], expected.gradients[i])),
                  most);
  }
}

/// Compares `op`, in f64 and in f32, with a case of a golden file; `names` are its inputs in order.
inline void check_golden(const Golden& golden, const std::string& name_of_case,
                         const std::vector<std::string>& names, const Op& op, double tolerance = 1e-11,
                         double tolerance_f32 = 1e-5) {
  CAPTURE(name_of_case);
  CHECK_BELOW(golden_error(golden, name_of_case, names, op), tolerance);
  CHECK_BELOW(golden_error(golden, name_of_case, names, op, DType::f32), tolerance_f32);
}

/// Both orders of derivative, by `most_elements` of each input, into the table that the tests print.
inline void check_both_orders(const std::string& name, const std::function<Tensor()>& function,
                              const std::vector<std::pair<std::string, Tensor>>& inputs,
                              Index most_elements = gradcheck_most_elements) {
  GradcheckOptions options;
  options.second_order = true;
  options.most_elements = most_elements;
  check_gradients(name, gradcheck(function, inputs, options));
}

}  // namespace tapeformer
