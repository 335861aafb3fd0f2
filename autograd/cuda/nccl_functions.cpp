#include <tapeformer/autograd/cuda/library.h>
#include <tapeformer/autograd/cuda/nccl_functions.h>

namespace tapeformer::cuda {

const NcclFunctions& nccl() {
  static const Library library("[nccl] sums between GPUs", "libnccl.so.2",
                               {TAPEFORMER_CUDA_LIBRARIES, "/usr/local/cuda/lib64"});
  static const NcclFunctions functions = {
      library.find("ncclGetVersion"),         library.find("ncclGetErrorString"),
      library.find("ncclGetLastError"),       library.find("ncclGetUniqueId"),
      library.find("ncclCommInitRankConfig"), library.find("ncclCommGetAsyncError"),
      library.find("ncclCommFinalize"),       library.find("ncclCommDestroy"),
      library.find("ncclCommAbort"),          library.find("ncclAllReduce"),
      library.find("ncclReduceScatter"),      library.find("ncclAllGather"),
      library.find("ncclBroadcast")};
  return functions;
}

}  // namespace tapeformer::cuda
