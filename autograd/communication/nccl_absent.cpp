#include <tapeformer/autograd/communication/nccl.h>

namespace tapeformer {

std::shared_ptr<Communicator> nccl_communicator(std::shared_ptr<Communicator> processes, int, double) {
  if (processes->size() == 1) return processes;
  throw CommunicationError(
      "[nccl] this build cannot train on several GPUs; try -DTAPEFORMER_CUDA=ON with a CUDA toolkit that has "
      "nccl.h (libnccl-dev)");
}

}  // namespace tapeformer
