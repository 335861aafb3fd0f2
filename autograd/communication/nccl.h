#pragma once

#include <tapeformer/autograd/communication/communicator.h>

#include <memory>

namespace tapeformer {

/// Communication between GPUs by NCCL, one rank per GPU. Tensors of the CPU are passed on to `processes`,
/// which also determines the ranks. An operation runs concurrently with kernels, but after those that were
/// queued before it, and before those that are queued after its wait().
///
/// A rank that waits longer than `limit_seconds` for the others (0: for ever), or in which NCCL fails, has
/// failed for good: every later call, and every call that waits for the device or queues work there, throws
/// CommunicationError, until the communicator and its operations are destroyed.
/// Throws:  CommunicationError, on all ranks alike, if a rank has no GPU of its own, if its NCCL is missing,
///          older than 2.14 or not that of the others, or if the ranks do not meet in time
std::shared_ptr<Communicator> nccl_communicator(std::shared_ptr<Communicator> processes, int device,
                                                double limit_seconds = 600);

}  // namespace tapeformer
