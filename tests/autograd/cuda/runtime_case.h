#pragma once

#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/cuda/graph.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>

#include <functional>
#include <memory>
#include <vector>

namespace tapeformer {

/// A block of a GPU's memory, released at the end.
struct DeviceBlock {
  explicit DeviceBlock(std::size_t size, bool for_upload = false)
      : bytes(size), memory(for_upload ? cuda::allocate_for_upload(0, size) : cuda::allocate(0, size)) {}
  ~DeviceBlock() { cuda::release(0, memory, bytes); }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  std::size_t bytes;
  void* memory;
};

inline std::vector<unsigned char> downloaded(int device, const void* from, std::size_t bytes) {
  std::vector<unsigned char> here(bytes);
  cuda::download(device, here.data(), from, bytes);
  return here;
}

constexpr Index kCount = 1000;
constexpr std::size_t kBytes = kCount * sizeof(double);

/// kCount numbers on the GPU.
inline Tensor numbers(double value) { return Tensor::full({kCount}, value, DType::f64, Device::cuda()); }
inline double* on_device(const Tensor& x) { return x.address<double>(); }
inline void fill(void* to, double value) { cuda::fill(0, DType::f64, kCount, value, to); }

/// A graph of the work that `work` queues.
inline std::unique_ptr<cuda::Graph> captured(const std::function<void()>& work,
                                             std::int64_t expected_bytes = 0) {
  cuda::Capture capture(0, expected_bytes);
  work();
  return capture.finish();
}

}  // namespace tapeformer
