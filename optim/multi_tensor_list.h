#pragma once

#include <tapeformer/autograd/kernels/optim.h>
#include <tapeformer/autograd/parameter.h>

namespace tapeformer {

/// The parameters of a step, as its kernels see them: for a GPU a table in its memory, which is sent there
/// when an address, a size or a setting has changed and otherwise stays, so that a training step sends
/// nothing.
class MultiTensorList {
 public:
  /// Between begin() and end(), the parameters that have gradients are added. `op` is for messages.
  void begin(const char* op) { op_ = op, count_ = 0; }
  /// State that an optimizer does not keep is undefined.
  /// Throws: DTypeError or DeviceError unless all tensors are of the first value's type, on its device
  void add(const Parameter& parameter, const Tensor& state1, const Tensor& state2, Index setting);
  void end();

  bool empty() const { return count_ == 0; }
  /// What has been added, in memory of the device; valid until the next begin().
  const kernels::StepTensors& tensors() const { return tensors_; }

 private:
  void* checked_address(const char* name, const Tensor& x) const;

  const char* op_ = "";
  Tensor like_;  // the first value
  std::size_t count_ = 0;
  bool changed_ = false;
  PooledVector<kernels::StepTensor> entries_;
  Tensor on_device_, chunks_on_device_;
  kernels::StepTensors tensors_;
};

}  // namespace tapeformer
