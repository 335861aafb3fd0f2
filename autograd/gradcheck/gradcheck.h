#pragma once

#include <tapeformer/autograd/parameter.h>
#include <tapeformer/autograd/tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

class Tape;

/// The default of GradcheckOptions::most_elements; for devices on which checking all elements takes too long.
inline Index gradcheck_most_elements = 0;

/// How gradcheck() compares.
struct GradcheckOptions {
  double step = 1e-3;      ///< times max(1, |x|) for an element x; along a direction as it is
  bool four_point = true;  ///< error O(h^4) instead of O(h^2)
  double tolerance =
      1e-7;                ///< on the relative error: max |analytic - numeric| / max |numeric| over one input
  double absolute = 1e-9;  ///< an input whose largest difference is below this passes
  bool second_order = false;  ///< also checks the gradient of the gradient
  /// Also checks forward mode: J v, the change of the whole output along a random direction v of one input,
  /// or with `directions` of all. Two backward passes compute it: v'(J'u) is linear in the seed u, and its
  /// gradient by u is J v. It must agree with differences of the output, and u'(J v) with v'(J'u) of the
  /// backward pass.
  /// Source:  Townsend 2017, j-towns.github.io, "A new trick for calculating Jacobian vector products"
  bool forward = false;
  /// Also repeats the backward pass, on the same tape and from the start: gradients must have the same bits.
  bool repeats = false;
  /// Names of inputs whose gradient must be exactly zero although the output depends on them, such as those
  /// that the function detaches.
  std::vector<std::string> constants;
  std::uint64_t seed = 1;  ///< of the random projection of the output
  /// The size of an even sample of elements per input; 0 for all.
  Index most_elements = gradcheck_most_elements;
  /// For models with too many elements: instead of one after another, all inputs move together along this
  /// many random directions of length 1. An error counts against |gradient| / sqrt(elements), the average
  /// derivative along a direction. Each direction takes four calls of the function, more if it is off, and
  /// notices a wrong gradient in proportion to its share in the whole. An input without gradient is then
  /// moved alone, and reported by its name if the function depends on it. `skip` and `most_elements` do not
  /// apply.
  Index directions = 0;
  /// Called with every tape before its pass, to plant faults.
  std::function<void(Tape&)> on_tape;
  /// Returns true for elements to skip, where the function has a kink.
  std::function<bool(std::size_t input, Index element)> skip;
};

/// The fault of an input whose differences are inconclusive: they change with the step as much as they are
/// off.
inline constexpr const char* kTooCoarse = "differences too coarse, try another step";

/// The comparison for one input.
struct GradcheckInput {
  std::string name;  ///< as the caller named it
  /// The largest difference over the largest numeric derivative, and the largest difference.
  double relative_error = 0, absolute_error = 0;
  double scale = 0;  ///< the largest numeric derivative; with `directions`, the average derivative
  /// Where the difference is largest, and the number of elements that were compared.
  Index worst_element = -1, checked = 0;
  bool passed = true;  ///< within the tolerance, or below `absolute`
  std::string fault;   ///< the cause, if known: "it gets no gradient", kTooCoarse
  /// True if the derivative is zero in theory, such as a softmax's key bias's: the differences are rounding
  /// errors, whose ratio means nothing.
  bool zero_in_theory() const { return passed && scale < 1e-9; }

  /// Adds a pair; NaN is the largest difference.
  void compare(Index element, double analytic, double numeric);
  /// Adds all elements of two tensors of one shape.
  void compare(const Tensor& analytic, const Tensor& numeric);
  /// To be called after the last pair: sets the relative error, and whether it is small enough.
  void judge(const GradcheckOptions& options);
  /// To be called instead of compare() and judge(): passes if two passes gave the same bits.
  void compare_bits(const Tensor& again, const Tensor& before);
};

/// The result of gradcheck().
struct GradcheckReport {
  std::vector<GradcheckInput> inputs;           ///< first derivatives
  std::vector<GradcheckInput> second_inputs;    ///< with second_order
  std::vector<GradcheckInput> forward_inputs;   ///< with `forward`: J v against differences of the output
  std::vector<GradcheckInput> adjoint_inputs;   ///< with `forward`: u'(J v) against v'(J'u)
  std::vector<GradcheckInput> repeated_inputs;  ///< with `repeats`: gradients against those of other passes

  /// True if every input passed every comparison.
  bool passed() const;
  /// The largest relative error of all comparisons.
  double worst_relative_error() const;
  /// The largest absolute error of all comparisons.
  double worst_absolute_error() const;
  /// A line for each input and comparison.
  std::string text() const;
  /// Calls f(name, inputs) for each kind of comparison.
  template <class F>
  void for_each_part(const F& f) const {
    f("first", inputs);
    f("second", second_inputs);
    f("J v", forward_inputs);
    f("u'J v", adjoint_inputs);
    f("again", repeated_inputs);
  }
};

/// Compares the tape's gradients with central differences in double. Both are of a random projection of the
/// output, because a plain sum hides errors: a softmax's sum has no gradient.
/// `function` computes the output from the current values of `inputs`, which it captures; it must be
/// deterministic (freeze dropout). An element that is off by more than a tenth of the tolerance is compared
/// again, with the same tolerance, with differences of smaller and larger steps, extrapolated to a step of 0,
/// which removes errors of the differences, but not those of a gradient. An error that changes with the step
/// as much as it is off is kTooCoarse, and does not pass. No step helps at a kink: see
/// GradcheckOptions::skip. Values are perturbed in place and restored, even if the function throws. Inputs
/// may share memory, like a tensor given twice or an alias of another shape: they move together, and their
/// gradients are added.
/// Throws:  DTypeError unless every input is f64, Error without inputs or for a constant that is none of them
GradcheckReport gradcheck(const std::function<Tensor()>& function,
                          const std::vector<std::pair<std::string, Tensor>>& inputs,
                          const GradcheckOptions& options = {});

}  // namespace tapeformer
