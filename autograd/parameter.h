#pragma once

#include <tapeformer/autograd/tensor.h>

#include <string>

namespace tapeformer {

struct ParameterState : Pooled {
  explicit ParameterState(Tensor initial);
  ~ParameterState();
  ParameterState(const ParameterState&) = delete;
  ParameterState& operator=(const ParameterState&) = delete;

  void require_gradient_buffer();

  Tensor value, gradient;
  Tensor shadow;  ///< the value in a narrower type, for operations to read; undefined for none
  /// The elements in `updated`, flat, if processes divide the value, which then has no memory; else
  /// undefined.
  Tensor share;
  std::string name;
  bool has_gradient = false;  ///< false: the next gradient is assigned, whatever the buffer holds
  bool trainable = true;
  bool optimized = false;  ///< it was given to an optimizer
  /// The elements that this process's optimizer updates, and keeps state for: [begin, end). If DataParallel
  /// has divided the work, other processes update the others.
  struct Range {
    Index begin = 0, end = 0;
  } updated;
};

/// A trainable leaf: a value and its gradient (f32 at least), outside every tape. A handle: copies are the
/// same parameter, by which two layers tie their weights.
class Parameter {
 public:
  Parameter() = default;
  /// Takes over the tensor as its value, without a copy unless it is the value of another parameter.
  explicit Parameter(Tensor value) : state_(new ParameterState(std::move(value))) {}

  /// False for a handle without a tensor, which is read as an undefined one.
  bool defined() const { return static_cast<bool>(state_); }
  /// The values that an optimizer updates, in their own type.
  const Tensor& value() const { return state_ ? state_->value : kNone; }
  /// The tensor that operations read: the value, or its shadow if there is one.
  const Tensor& used() const { return state_ && state_->shadow.defined() ? state_->shadow : value(); }
  /// Returns used().
  operator const Tensor&() const { return used(); }  // NOLINT: a parameter is used as its value

  /// The sum of the backward passes' gradients since clear_gradient(); undefined if there was none.
  Tensor gradient() const { return state_ && state_->has_gradient ? state_->gradient : Tensor(); }
  /// Clears the gradient at no cost: the buffer stays, and the next gradient overwrites it.
  void clear_gradient() { state_->has_gradient = false; }

  /// The path in the model, e.g. "decoder.0.self_attention.query.weight"; set by Module. Empty before the
  /// first visit().
  const std::string& name() const { return state_->name; }
  /// Sets a path by hand, which Module::parameters() overwrites with its own.
  void set_name(const std::string& name) { state_->name = name; }
  /// False once set_trainable(false) has frozen it.
  bool trainable() const { return state_->trainable; }
  /// Tapes ignore a parameter that is not trainable.
  void set_trainable(bool trainable) { state_->trainable = trainable; }

  /// Replaces the value (another type or device, loaded weights), by a copy if it is the value of another
  /// parameter, and drops the gradient. Keeps a shadow unless the type changes.
  void set_value(Tensor value);
  /// From now on operations read a copy of the value in `type` (bf16), while the value, its gradient and the
  /// optimizer stay in f32. With the value's own type they read the value again.
  /// Throws:  DTypeError unless `type` is the value's own, or bf16 for f32
  void set_shadow(DType type);
  /// Must be called after elements of the value have changed.
  void refresh_shadow();

  /// True for handles on the same parameter.
  bool operator==(const Parameter& other) const { return state_.get() == other.state_.get(); }
  /// For the tape and optimizers: the shared state.
  ParameterState* state() const { return state_.get(); }

 private:
  inline static const Tensor kNone{};
  Handle<ParameterState> state_;
};

/// The state of a model that operations read and change.
struct ModelState {
  std::vector<Parameter> parameters;     ///< values that training changes
  std::vector<Tensor*> buffers;          ///< constants that follow from the configuration
  std::vector<std::uint64_t*> counters;  ///< of random draws
  std::vector<bool*> modes;              ///< true in training
};

}  // namespace tapeformer
