#pragma once

#if __has_include(<libraries/emulated_nccl.h>)
#include <libraries/emulated_nccl.h>  // the host plays the library, in the tests
#else
#include <nccl.h>
#endif

namespace tapeformer::cuda {

struct NcclFunctions {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclBroadcast) broadcast;
};

/// Loads the library at the first call.
/// Throws:  DeviceError if it cannot be loaded, or is older than 2.14
const NcclFunctions& nccl();

}  // namespace tapeformer::cuda
