#pragma once

#include <cstddef>
#include <memory>

namespace tapeformer::cuda {

struct ReadbackSlot;

/// A few bytes copied from a device when the kernels queued before have run. Only wait() and the destructor
/// wait for them.
class Readback {
 public:
  static constexpr std::size_t kMostBytes = 64;
  /// Throws: NotCapturable in a capture, DeviceError for more than kMostBytes
  Readback(int device, const void* from, std::size_t bytes);
  ~Readback();
  Readback(const Readback&) = delete;
  Readback& operator=(const Readback&) = delete;

  /// Waits for the bytes and returns them. Throws: ShapeError if an earlier kernel has left a device error
  const void* wait();

 private:
  [[maybe_unused]] int device_;  // unused in a build without GPUs
  std::unique_ptr<ReadbackSlot> slot_;
};

}  // namespace tapeformer::cuda
