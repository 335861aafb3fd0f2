#pragma once

#include <cuda_emulator.h>

namespace tapeformer {

/// While it lives, blocks and threads run in the order of a seed, whatever the environment says.
class InOrder {
 public:
  explicit InOrder(std::uint64_t seed) { emulator::options().order = seed; }
  ~InOrder() { emulator::options() = before_; }
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;

 private:
  emulator::Options before_ = emulator::options();
};

}  // namespace tapeformer
