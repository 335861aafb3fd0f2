#pragma once

#include <tapeformer/autograd/kernels/philox.h>
#include <tapeformer/autograd/tensor.h>

#include <cstdint>

namespace tapeformer {

/// Identifies one dropout decision: the run's seed, the layer's stream, the training step. The bits of a step
/// above its lower 32 select another stream, as processes that train together need.
struct DropoutKey {
  /// The three values that select the random words.
  std::uint64_t seed = 0, stream = 0, step = 0;
  const std::uint64_t* moved_by = nullptr;  ///< in a GPU's memory, see PhiloxStream
};

/// The argument of kernels that drop elements: those whose random word is below `dropped`.
struct DropoutDraw {
  kernels::PhiloxStream stream;
  std::uint32_t dropped = 0;
  double kept_scale = 1;
};
/// The draw for a probability in [0, 1).
DropoutDraw draw_dropout(double probability, const DropoutKey& key);

/// Zeros elements at random and scales the others so that the mean is kept. The choice is a function of the
/// key and the position in memory order: the same in f32 and f64, for any number of threads, on any device.
/// Probabilities are exact to 2^-32.
/// Math:    y = kept ? x / (1 - probability) : 0
/// Grad:    dx = kept ? dy / (1 - probability) : 0
/// Shapes:  x -> y as x; x itself when probability is 0
/// Saves:   one bit for each element
/// Throws:  ShapeError if probability is outside [0, 1]
/// Source:  Srivastava et al. 2014, JMLR 15:1929; the random words are Philox's, see kernels/dropout.h
Tensor dropout(const Tensor& x, double probability, const DropoutKey& key);

}  // namespace tapeformer
