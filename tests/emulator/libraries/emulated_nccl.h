#pragma once

// The part of NCCL that the library uses, played by the host for the emulated devices of one process: each
// rank is a thread with a device of its own. Sums are taken in the order of the ranks, in the type of the
// elements. Communicators are not blocking, and a call has happened only when ncclCommGetAsyncError says so.
// Calls that come too early fail. Calls that differ between the ranks, and communicators that are destroyed
// while in use or used after their end, end the program with a message.

#include <emulated_cuda.h>

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum ncclRedOp_t { ncclSum = 0 };
enum ncclDataType_t { ncclUint8 = 1, ncclFloat32 = 7, ncclFloat64 = 8, ncclBfloat16 = 9 };
using ncclComm_t = struct EmulatedNcclRank*;
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  unsigned magic;
  int blocking;
};
#define NCCL_CONFIG_INITIALIZER \
  { 0xcafebeef, INT_MIN }

ncclResult_t ncclGetVersion(int* version);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t rank);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* rank, int size, ncclUniqueId id, int number,
                                    ncclConfig_t* config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t rank, ncclResult_t* state);
ncclResult_t ncclCommFinalize(ncclComm_t rank);
ncclResult_t ncclCommDestroy(ncclComm_t rank);
ncclResult_t ncclCommAbort(ncclComm_t rank);
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t rank, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t share, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t rank, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t share, ncclDataType_t type,
                           ncclComm_t rank, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t rank, cudaStream_t stream);

namespace tapeformer::emulator {

/// The behaviour that tests choose for the library.
struct NcclLibrary {
  std::array<int, 3> versions{22809, 22809, 22809};  ///< for each device
  std::string why_missing;                           ///< it cannot be loaded; empty: it can
  /// True: operations happen as soon as all ranks have called them and their streams have come so far, which
  /// finds operations that do not wait for earlier work. False: as late as the rules allow, which finds work
  /// that does not wait for them.
  bool is_early = false;
  std::int64_t microseconds = 0;  ///< that an operation takes
  /// A call of `function` by `rank` that fails; ncclCommGetAsyncError tells it of an operation under way.
  struct Fault {
    std::string function;
    int rank = 0;
    ncclResult_t result = ncclSuccess;
    std::string text;
  };
  Fault fault;
  /// Called on undefined behaviour of a real device; empty: ends the program.
  std::function<void(const std::string&)> complain;
};
inline NcclLibrary& nccl_library() {
  static NcclLibrary library;
  return library;
}

}  // namespace tapeformer::emulator
