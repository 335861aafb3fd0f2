#pragma once

#include <tapeformer/autograd/gradcheck/gradcheck.h>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tapeformer {

/// A derivative by differences, and its uncertainty.
struct NumericDerivative {
  /// The derivative, and an estimate of its error.
  double value = 0, uncertainty = 0;
};

/// The derivatives at 0 of the values that `f(offset)` returns, by central differences, each taken once.
class CentralDifferences {
 public:
  /// The function of the offset.
  using Function = std::function<std::vector<double>(double offset)>;
  /// Takes differences of `f` with the step h = `step`, from two points or four.
  CentralDifferences(Function f, double step, bool four_point)
      : f_(std::move(f)), step_(step), four_point_(four_point) {}

  /// The derivatives with the given step.
  /// Math:    D(h) = (f(h) - f(-h)) / 2h with error O(h^2), or (4 D(h) - D(2h)) / 3 with error O(h^4)
  std::vector<double> usual();
  /// The derivative of f_i, extrapolated to a step of 0 from steps of 2h to h / 256. Where these differ by
  /// more than `wanted`, coarser ones up to 512h count too, unless they contradict: rounding errors grow as
  /// the step shrinks. The uncertainty of NaN is infinite.
  /// Math:    T[k][0] = D(2h / 2^k), T[k][j] = T[k][j-1] + (T[k][j-1] - T[k-1][j-1]) / (4^j - 1); of each
  ///          row the entry that differs least from those it is made of, and of these the one that differs
  ///          least from its neighbours; where two agree with theirs and not with each other, the finer one
  /// Source:  Ridders 1982, Advances in Engineering Software 4(2), "Accurate computation of F'(x) and
  ///          F'(x) F''(x)"
  NumericDerivative extrapolated(std::size_t i, double wanted);

 private:
  const std::vector<double>& quotient(int halvings);
  NumericDerivative extrapolated_from(int coarsest, std::size_t i, double wanted);

  Function f_;
  double step_;
  bool four_point_;
  std::map<int, std::vector<double>> quotients_;  // by the halvings of 2h
};

/// An element's derivative by the tape and by differences of the usual step.
struct ComparedElement {
  /// Its index.
  Index element;
  /// Its derivatives.
  double analytic, numeric;
  /// Whether the numeric one has been replaced by an extrapolated one.
  bool is_extrapolated = false;
};

/// Compares `elements`, whose largest derivative is `scale`, or if that is 0, the largest numeric one.
/// Elements that are off by more than a tenth of the limit are compared again, the worst first, with the
/// result of extrapolated(index in elements, wanted uncertainty), until one fails.
GradcheckInput compare_elements(
    const std::string& name, std::vector<ComparedElement> elements, double scale,
    const GradcheckOptions& options,
    const std::function<NumericDerivative(std::size_t place, double wanted)>& extrapolated);

}  // namespace tapeformer
