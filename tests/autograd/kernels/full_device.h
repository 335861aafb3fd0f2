#pragma once

#include <doctest/doctest.h>
#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/storage.h>

#include <cstddef>
#include <vector>

namespace tapeformer {

/// The first device with nothing left but `room` units, and less than one more, until the end of the scope.
/// Make it before there are graphs, which it would evict.
class FullDevice {
 public:
  /// False where there is no GPU, or memory is managed, which does not run out.
  static bool is_possible() {
    if (cuda::device_count() == 0) MESSAGE("skipped: " << cuda::availability());
    return cuda::device_count() > 0 && !cuda::is_host_readable();
  }
  /// In bytes: no less than what a pool takes from its device at once.
  static std::size_t unit() {
    const bool is_emulated = cuda::device_name(0).find("emulated") == 0;
    return std::size_t{is_emulated ? 4u : 32u} << 20;
  }
  static Handle<Storage> block(std::size_t units) {
    return Handle<Storage>(new Storage(units * unit(), Device::cuda()));
  }

  explicit FullDevice(std::size_t room) {
    const Handle<Storage> left = block(room);
    for (std::size_t units = std::size_t{1} << 13; units > 0;) {
      try {
        blocks_.push_back(block(units));
      } catch (const DeviceError&) {
        units /= 2;
      }
    }
  }

 private:
  std::vector<Handle<Storage>> blocks_;
};

}  // namespace tapeformer
