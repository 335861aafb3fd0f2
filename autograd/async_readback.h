#pragma once

#include <tapeformer/autograd/cuda/readback.h>
#include <tapeformer/autograd/tensor.h>

#include <memory>

namespace tapeformer {

/// The only element of a tensor, for the host to have later: x.item() as x is now, though more work may have
/// been queued behind it and have changed x. On a GPU nothing waits before item() does.
class AsyncReadback {
 public:
  AsyncReadback() = default;
  /// Throws: ShapeError unless x has one element
  explicit AsyncReadback(const Tensor& x);

  bool defined() const { return here_.defined(); }
  /// Waits. Throws: ShapeError for what an operation before it found wrong with its input
  double item();

 private:
  Tensor here_;  // on the CPU
  std::unique_ptr<cuda::Readback> readback_;
};

}  // namespace tapeformer
