#pragma once

#include <tapeformer/autograd/parameter.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tapeformer {

/// Sees everything an optimizer remembers between steps, to save it or, writing through the references, to
/// restore it. The same names in the same order each time; restoring them bit by bit continues bit by bit.
class OptimizerVisitor {
 public:
  virtual ~OptimizerVisitor() = default;
  virtual void tensor(const std::string& name, const Tensor& value) = 0;
  virtual void counter(const std::string& name, std::int64_t& value) = 0;
};

/// Changes parameters by their gradients. The caller chooses the learning rate of each step (see Schedule).
///
/// Gradient accumulation: parameters add up what several backward passes bring, so run them all and then step
/// once. For the gradient of the mean over all tokens, seed each pass with its own share,
///   tape.backward(loss, Tensor::scalar(tokens of this batch / tokens of all))
/// or, when the total is known only at the end, seed with the tokens and call scale_gradients(parameters, 1 /
/// total).
class Optimizer {
 public:
  /// Throws: Error if a parameter is given twice, DTypeError if one is neither f32 nor f64.
  Optimizer(std::string algorithm, std::vector<Parameter> parameters);
  virtual ~Optimizer() = default;

  /// One update of every parameter that has a gradient; others stay as they are, and so does their state.
  /// The gradients count times `gradient_scale`, which spares a pass over all of them: see clip_factor().
  /// Allocates nothing.
  virtual void step(double learning_rate, double gradient_scale) = 0;
  void step(double learning_rate) { step(learning_rate, 1); }
  virtual void visit_state(OptimizerVisitor& visitor) = 0;

  void clear_gradients();
  const std::vector<Parameter>& parameters() const { return parameters_; }

 protected:
  /// One tensor of zeros for each parameter, on its device.
  std::vector<Tensor> zeros_like_parameters() const;
  /// Where operations read the parameter's value in bf16, which a step writes too; nullptr where they do not.
  BFloat16* shadow(std::size_t parameter) const;
  /// "adamw.first_moment.encoder.0.query.weight"; a nameless parameter goes by its number.
  std::string state_name(const char* what, std::size_t parameter) const;
  void visit_tensors(OptimizerVisitor& visitor, const char* what, const std::vector<Tensor>& tensors) const;

  std::vector<Parameter> parameters_;

 private:
  std::string algorithm_;
};

/// Multiplies every gradient by `factor`.
void scale_gradients(const std::vector<Parameter>& parameters, double factor);

}  // namespace tapeformer
