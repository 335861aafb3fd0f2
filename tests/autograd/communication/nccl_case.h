#pragma once

#include <doctest/doctest.h>
#include <libraries/emulated_nccl.h>
#include <tapeformer/autograd/communication/nccl.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/tests/reference/thread_communicator.h>

#include <cstdlib>
#include <functional>

namespace tapeformer {

/// For cases that need `count` GPUs, real or emulated: says so and is false where there are fewer.
inline bool has_gpus(int count) {
  if (cuda::device_count() >= count) return true;
  MESSAGE("skipped: needs " << count << " GPUs: " << cuda::availability());
  return false;
}
inline bool has_emulated_gpus(int count) {
  return has_gpus(count) && cuda::device_name(0).find("emulated") == 0;
}

using OnGpu = std::function<void(Communicator&, Device)>;
/// Runs `body` as each of `size` ranks, on threads of this process with a GPU each.
inline void on_gpus(int size, const OnGpu& body, double limit_seconds = 20) {
  setenv("NCCL_P2P_DIRECT_DISABLE", "1",
         0);  // in one process GPUs would read each other's pools, and may not
  reference::as_ranks(size, [&](Communicator& ranks) {
    const auto gpus = nccl_communicator(reference::borrowed(ranks), ranks.rank(), limit_seconds);
    body(*gpus, Device::cuda(ranks.rank()));
  });
}

/// During its lifetime, the emulated NCCL behaves as a test wants.
struct EmulatedNccl {
  ~EmulatedNccl() { emulator::nccl_library() = {}; }
  emulator::NcclLibrary* operator->() { return &emulator::nccl_library(); }
};

}  // namespace tapeformer
