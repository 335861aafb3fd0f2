#pragma once

#include <tapeformer/autograd/cuda/readback.h>
#include <tapeformer/autograd/tensor.h>

#include <memory>

namespace tapeformer {

/// The only element of a tensor as it is now, for the host to read later, even if work queued in between
/// changes the tensor. On a GPU only item() and the destructor wait.
class AsyncReadback {
 public:
  AsyncReadback() = default;
  /// Throws: ShapeError unless x has one element
  explicit AsyncReadback(const Tensor& x);

  /// False until a tensor has been given.
  bool defined() const { return here_.defined(); }
  /// Waits for the element. Throws: ShapeError if an earlier operation on a GPU has found invalid input
  double item();

 private:
  Tensor here_;  // on the CPU
  std::unique_ptr<cuda::Readback> readback_;
};

}  // namespace tapeformer
