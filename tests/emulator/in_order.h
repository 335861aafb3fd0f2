#pragma once

#if __has_include(<cuda_emulator.h>)
#include <cuda_emulator.h>
#endif

#include <cstdint>

namespace tapeformer {

/// During its lifetime, blocks and threads of the emulated GPU run in the order of a seed, whatever the
/// environment says; those of a real one in any order.
class InOrder {
 public:
#if __has_include(<cuda_emulator.h>)
  explicit InOrder(std::uint64_t seed) { emulator::options().order = seed; }
  ~InOrder() { emulator::options() = before_; }
#else
  explicit InOrder(std::uint64_t) {}
  ~InOrder() {}
#endif
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;

#if __has_include(<cuda_emulator.h>)
 private:
  emulator::Options before_ = emulator::options();
#endif
};

}  // namespace tapeformer
