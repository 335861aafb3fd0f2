#pragma once

#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/kernels/write.h>

namespace tapeformer::kernels {

/// Device memory that lives until the kernels queued meanwhile are done with it; nullptr for a count of 0.
template <class T>
class Scratch {
 public:
  Scratch(Cuda on, Index count)
      : device_(on.device),
        bytes_(static_cast<std::size_t>(count) * sizeof(T)),
        data_(bytes_ > 0 ? cuda::allocate(device_, bytes_) : nullptr) {}
  ~Scratch() { cuda::release(device_, data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return static_cast<T*>(data_); }

 private:
  int device_;
  std::size_t bytes_;
  void* data_;
};

}  // namespace tapeformer::kernels
