#pragma once

#include <tapeformer/autograd/parameter.h>
#include <tapeformer/autograd/tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

class Tape;

/// The default of GradcheckOptions::most_elements; for devices on which all elements take too long.
inline Index gradcheck_most_elements = 0;

/// How gradcheck() compares.
struct GradcheckOptions {
  double step = 1e-3;      ///< times max(1, |x|)
  bool four_point = true;  ///< error O(h^4) instead of O(h^2)
  double tolerance =
      1e-7;                ///< on the relative error: max |analytic - numeric| / max |numeric| over one input
  double absolute = 1e-9;  ///< an input whose largest difference is below this passes
  bool second_order = false;  ///< also checks the gradient of the gradient
  std::uint64_t seed = 1;     ///< of the random projection of the output
  /// Per input, an even sample of this many elements; 0 for all.
  Index most_elements = gradcheck_most_elements;
  /// For models with too many elements: instead of one after another, all inputs move together along this
  /// many random directions of length 1. An error counts against |gradient| / sqrt(elements), what a
  /// direction's derivative is on average. Each takes four calls of the function, and notices a wrong
  /// gradient as far as it matters to the whole. `skip` and `most_elements` do not apply.
  Index directions = 0;
  /// Called with every tape before its pass: to plant faults.
  std::function<void(Tape&)> on_tape;
  /// Returns true for elements to skip, where the function has a kink.
  std::function<bool(std::size_t input, Index element)> skip;
};

/// The comparison for one input.
struct GradcheckInput {
  std::string name;  ///< as the caller named it
  /// The largest difference over the largest numeric derivative, and the largest difference.
  double relative_error = 0, absolute_error = 0;
  double scale = 0;  ///< the largest numeric derivative
  /// Where the difference is largest, and the number of elements that were compared.
  Index worst_element = -1, checked = 0;
  bool passed = true;  ///< within the tolerance, or below `absolute`
  /// The derivative is zero in theory, as a softmax's key bias's is: the differences are rounding errors,
  /// whose ratio means nothing.
  bool zero_in_theory() const { return passed && scale < 1e-9; }
};

/// What gradcheck() found.
struct GradcheckReport {
  std::vector<GradcheckInput> inputs;         ///< first derivatives
  std::vector<GradcheckInput> second_inputs;  ///< with second_order
  /// True if every input of both orders passed.
  bool passed() const;
  /// The largest relative error of the inputs, both orders.
  double worst_relative_error() const;
  /// The largest absolute error of the inputs, both orders.
  double worst_absolute_error() const;
  /// A line for each input.
  std::string text() const;
};

/// Compares the tape's gradients with central differences in double. Both are of a random projection of the
/// output, because a plain sum hides errors: a softmax's sum has no gradient.
/// `function` computes the output from the current values of `inputs`, which it captures; it must be
/// deterministic (freeze dropout). Values are perturbed in place and restored.
/// Throws:  DTypeError unless every input is f64
GradcheckReport gradcheck(const std::function<Tensor()>& function,
                          const std::vector<std::pair<std::string, Tensor>>& inputs,
                          const GradcheckOptions& options = {});

}  // namespace tapeformer
