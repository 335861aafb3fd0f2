#pragma once

#include <tapeformer/autograd/kernels/optim.h>
#include <tapeformer/autograd/parameter.h>

namespace tapeformer {

/// The number of elements of the parameter that this process updates (ParameterState::updated).
inline Index updated_elements(const Parameter& parameter) {
  const ParameterState::Range& range = parameter.state()->updated;
  return range.end - range.begin;
}
/// False where DataParallel has divided the parameter.
inline bool is_updated_whole(const Parameter& parameter) {
  return updated_elements(parameter) == parameter.value().elements();
}
/// Throws: ShapeError unless `state` has the elements of the parameter that this process updates
void require_updated_elements(const char* op, const Parameter& parameter, const Tensor& state);

/// The parameters of a step for kernels that update all of them at once. On a GPU it is a table in its
/// memory, uploaded only when an address, a size or a setting changes, so that a usual training step uploads
/// nothing.
class MultiTensorList {
 public:
  /// Begins a list, to which parameters with gradients are added until end(). `op` is for messages; all must
  /// have the type and device of `like`, or if that is undefined, of the first one.
  void begin(const char* op, const Tensor& like = {}) { op_ = op, count_ = 0, like_ = like; }
  /// Adds the elements that this process updates, if any. State consists of these elements; it is undefined
  /// if the optimizer keeps none.
  /// Throws: DTypeError or DeviceError unless all tensors have the type and device that begin() names,
  ///         ShapeError unless state has the elements that are updated
  void add(const Parameter& parameter, const Tensor& state1, const Tensor& state2, Index setting);
  /// Adds a part of a parameter that this process updates whole: `count` elements from `first` on, of state1
  /// too; those of state2 begin at `first2`. Throws: as add(), and ShapeError if ranks divide the parameter
  void add_part(const Parameter& parameter, Index first, Index count, const Tensor& state1,
                const Tensor& state2, Index first2, Index setting);
  /// Adds a gradient without a parameter, for a norm.
  void add(const Tensor& gradient);
  void end();

  bool empty() const { return count_ == 0; }
  /// The added parameters, in memory of the device; valid until the next begin().
  const kernels::StepTensors& tensors() const { return tensors_; }

 private:
  void* checked_address(const char* name, const Tensor& x) const;
  void append(const Parameter& parameter, Index first, Index count, const Tensor& state1, Index first1,
              const Tensor& state2, Index first2, Index setting);
  void append(const kernels::StepTensor& entry);
  void count_memory();

  const char* op_ = "";
  Tensor like_;  // that of begin(), or the first one
  std::size_t count_ = 0;
  bool changed_ = false;
  PooledVector<kernels::StepTensor> entries_;
  Tensor on_device_, chunks_on_device_;
  kernels::StepTensors tensors_;
};

}  // namespace tapeformer
