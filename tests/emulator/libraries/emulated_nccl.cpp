#include <libraries/emulated_nccl.h>
#include <tapeformer/autograd/bfloat16.h>
#include <tapeformer/autograd/cuda/nccl_functions.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/tests/emulator/emulated_state.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

using namespace tapeformer::emulator;
using tapeformer::BFloat16;

namespace {

/// A rank's call of an operation.
struct Call {
  const char* function = nullptr;
  const char* from = nullptr;
  char* to = nullptr;
  std::size_t from_bytes = 0, to_bytes = 0, count = 0;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t reduction = ncclSum;
  int root = 0;
  EmulatedStream* stream = nullptr;
  std::uint64_t position = 0;  // of the operation in its stream

  std::string text() const {
    return std::string(function) + " of " + std::to_string(count) + " elements of type " +
           std::to_string(type) + ", reduction " + std::to_string(reduction) + ", root " +
           std::to_string(root);
  }
};

/// The n-th operation of all ranks.
struct Meeting {
  std::vector<Call> calls;
  std::size_t here = 0;
  bool is_done = false;
};

/// The ranks that share an id.
struct Clique {
  std::vector<EmulatedNcclRank*> ranks;
  std::size_t joined = 0;
  bool is_broken = false;  // a rank has left without the others
  std::vector<std::shared_ptr<Meeting>> meetings;
};

}  // namespace

struct EmulatedNcclRank {
  std::shared_ptr<Clique> clique;
  std::size_t number;
  int device;
  std::size_t calls = 0;
  std::function<void()> pending = nullptr;  // the last call's work, until the caller has asked twice
  bool was_asked = false, is_aborted = false, is_finalized = false;
  ncclResult_t error = ncclSuccess;
};

namespace {

struct Known {
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  std::set<EmulatedNcclRank*> ranks;
  std::uint64_t ids = 0;
};
Known& known() {
  static Known* const all = new Known;
  return *all;
}

thread_local std::string last_text;

void complain(const std::string& what) {
  if (nccl_library().complain) return nccl_library().complain(what);
  std::fprintf(stderr, "emulated NCCL: %s\n", what.c_str());
  std::abort();
}

ncclResult_t failed(ncclResult_t result, const std::string& text) {
  last_text = text;
  return result;
}

/// The error that a test wants of this call.
ncclResult_t planted(const char* function, std::size_t rank) {
  const NcclLibrary::Fault& fault = nccl_library().fault;
  if (fault.function != function || static_cast<std::size_t>(fault.rank) != rank) return ncclSuccess;
  return failed(fault.result, fault.text);
}

void require_known(EmulatedNcclRank* rank, const char* function) {
  if (known().ranks.count(rank) > 0) return;
  std::fprintf(stderr, "emulated NCCL: %s is called with a communicator that has ended\n", function);
  std::abort();
}

std::size_t bytes_of(ncclDataType_t type) {
  return type == ncclFloat64 ? 8 : type == ncclFloat32 ? 4 : type == ncclBfloat16 ? 2 : 1;
}

/// The sum of elements [first, first + count) of all ranks' senders.
template <class T>
void reduce(const Meeting& meeting, std::size_t first, std::size_t count, char* to) {
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  for (std::size_t i = 0; i < count; ++i) {
    T sum{};
    for (std::size_t rank = 0; rank < meeting.calls.size(); ++rank) {
      const auto x = static_cast<Number>(reinterpret_cast<const T*>(meeting.calls[rank].from)[first + i]);
      sum = static_cast<T>(rank == 0 ? x : static_cast<Number>(sum) + x);
    }
    reinterpret_cast<T*>(to)[i] = sum;
  }
}

void reduce(const Meeting& meeting, std::size_t first, std::size_t count, std::vector<char>& to) {
  to.resize(count * bytes_of(meeting.calls[0].type));
  switch (meeting.calls[0].type) {
    case ncclFloat64: return reduce<double>(meeting, first, count, to.data());
    case ncclBfloat16: return reduce<BFloat16>(meeting, first, count, to.data());
    case ncclFloat32: return reduce<float>(meeting, first, count, to.data());
    case ncclUint8: return complain("a sum of bytes is not played");
  }
}

/// What each rank receives.
std::vector<std::vector<char>> results(const Meeting& meeting) {
  const Call& first = meeting.calls[0];
  const std::string function = first.function;
  std::vector<std::vector<char>> all(meeting.calls.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (function == "ncclAllReduce") reduce(meeting, 0, first.count, all[rank]);
    if (function == "ncclReduceScatter") reduce(meeting, rank * first.count, first.count, all[rank]);
    if (function == "ncclBroadcast") {
      const char* const from = meeting.calls[static_cast<std::size_t>(first.root)].from;
      all[rank].assign(from, from + first.from_bytes);
    }
    if (function == "ncclAllGather")
      for (const Call& call : meeting.calls)
        all[rank].insert(all[rank].end(), call.from, call.from + call.from_bytes);
  }
  return all;
}

/// For all ranks at once.
void perform_once(Meeting& meeting) {
  if (std::exchange(meeting.is_done, true)) return;
  for (const Call& call : meeting.calls) {
    if (call.text() != meeting.calls[0].text())
      return complain("ranks call different operations: " + meeting.calls[0].text() + " and " + call.text());
    require_device_memory(call.function, call.stream, call.from, call.from_bytes);
    require_device_memory(call.function, call.stream, call.to, call.to_bytes);
  }
  const auto all = results(meeting);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    std::copy(all[rank].begin(), all[rank].end(), meeting.calls[rank].to);
  microseconds += nccl_library().microseconds;
}

/// Until all ranks' streams have come to the operation, or this rank has been aborted.
void meet(const Meeting& meeting, const Clique& clique, const EmulatedNcclRank& rank) {
  while ((meeting.here < clique.ranks.size() || clique.is_broken) && !meeting.is_done && !rank.is_aborted)
    world().changed.wait(world().mutex);
  if (meeting.is_done || rank.is_aborted) return;
  for (const Call& call : meeting.calls) run_until(*call.stream, call.position - 1);
}

void queue_call(EmulatedNcclRank& rank, Call call) {
  const auto clique = rank.clique;
  const std::size_t number = rank.calls++;
  if (clique->meetings.size() <= number) {
    clique->meetings.push_back(std::make_shared<Meeting>());
    clique->meetings.back()->calls.resize(clique->ranks.size());
  }
  const auto meeting = clique->meetings[number];
  queue(
      *call.stream,
      [meeting, &rank, to = call.to, bytes = call.to_bytes] {
        if (!rank.is_aborted || meeting->is_done) return perform_once(*meeting);
        std::memset(to, 0xFF, bytes);  // the result of an aborted operation is undefined
      },
      [meeting, clique, &rank] { meet(*meeting, *clique, rank); });
  call.position = call.stream->queued;
  meeting->calls[rank.number] = call;
  if (++meeting->here < clique->ranks.size()) return;
  if (nccl_library().is_early)
    for (const Call& each : meeting->calls) run_until(*each.stream, each.position);
  world().changed.notify_all();
}

ncclResult_t call(EmulatedNcclRank* rank, Call call) {
  const Lock lock(world().mutex);
  require_known(rank, call.function);
  if (const ncclResult_t fault = planted(call.function, rank->number)) return fault;
  if (rank->pending || rank->is_finalized || rank->clique->joined < rank->clique->ranks.size())
    return failed(ncclInvalidArgument,
                  "the communicator is used before the last operation has succeeded, or after the end");
  if (call.stream->device != rank->device || current_device != rank->device)
    return failed(ncclInvalidUsage, "the stream or the current device is not the communicator's");
  if (spoils_capture(call.stream)) return failed(ncclInvalidUsage, "captured communication is not played");
  rank->pending = [rank, call] { queue_call(*rank, call); };
  rank->was_asked = false;
  return ncclInProgress;
}

bool is_idle(const EmulatedNcclRank& rank) {
  if (rank.calls == 0) return true;
  const Meeting& last = *rank.clique->meetings[rank.calls - 1];
  if (last.here < rank.clique->ranks.size() || (rank.clique->is_broken && !last.is_done)) return false;
  const Call& call = last.calls[rank.number];
  run_until(*call.stream, call.position);
  return true;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = nccl_library().versions.at(static_cast<std::size_t>(current_device));
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) { return last_text.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Lock lock(world().mutex);
  if (const ncclResult_t fault = planted("ncclGetUniqueId", 0)) return fault;
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "%llu", static_cast<unsigned long long>(++known().ids));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* rank, int size, ncclUniqueId id, int number,
                                    ncclConfig_t* config) {
  const Lock lock(world().mutex);
  *rank = nullptr;
  if (config->magic != 0xcafebeef || config->blocking != 0)
    return failed(ncclInvalidArgument, "only communicators that do not block are played");
  if (const ncclResult_t fault = planted("ncclCommInitRankConfig", static_cast<std::size_t>(number)))
    return fault;
  auto& clique = known().cliques[std::string(id.internal, sizeof id.internal)];
  if (!clique) clique = std::make_shared<Clique>();
  if (clique->ranks.empty()) clique->ranks.resize(static_cast<std::size_t>(size));
  const auto at = static_cast<std::size_t>(number);
  if (clique->ranks.size() != static_cast<std::size_t>(size) || at >= clique->ranks.size() ||
      clique->ranks[at] != nullptr)
    return failed(ncclInvalidArgument, "a rank joins twice, or expects another number of ranks");
  for (const EmulatedNcclRank* other : clique->ranks)
    if (other != nullptr && other->device == current_device)
      return failed(ncclInvalidUsage, "Duplicate GPU detected");
  *rank = new EmulatedNcclRank{clique, at, current_device};
  clique->ranks[at] = *rank;
  ++clique->joined;
  known().ranks.insert(*rank);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t rank, ncclResult_t* state) {
  const Lock lock(world().mutex);
  require_known(rank, "ncclCommGetAsyncError");
  const bool is_under_way = rank->calls > 0 && !rank->pending;
  if (const ncclResult_t fault = planted("ncclCommGetAsyncError", rank->number); fault && is_under_way) {
    *state = fault;
    return ncclSuccess;
  }
  *state = ncclInProgress;
  if (rank->clique->joined < rank->clique->ranks.size()) return ncclSuccess;
  if (rank->pending && !std::exchange(rank->was_asked, true)) return ncclSuccess;
  if (rank->pending) std::exchange(rank->pending, nullptr)();
  if (rank->is_finalized && !is_idle(*rank)) return ncclSuccess;
  *state = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t rank) {
  const Lock lock(world().mutex);
  require_known(rank, "ncclCommFinalize");
  rank->is_finalized = true;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t rank) {
  const Lock lock(world().mutex);
  require_known(rank, "ncclCommDestroy");
  if (!rank->is_finalized || !is_idle(*rank)) complain("a communicator is destroyed that is in use");
  known().ranks.erase(rank);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t rank) {
  const Lock lock(world().mutex);
  require_known(rank, "ncclCommAbort");
  rank->is_aborted = rank->clique->is_broken = true;
  rank->pending = nullptr;
  known().ranks.erase(rank);
  world().changed.notify_all();
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t rank, cudaStream_t stream) {
  const std::size_t bytes = count * bytes_of(type);
  return call(rank, {"ncclAllReduce", static_cast<const char*>(from), static_cast<char*>(to), bytes, bytes,
                     count, type, reduction, 0, stream});
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t share, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t rank, cudaStream_t stream) {
  const std::size_t bytes = share * bytes_of(type);
  return call(rank, {"ncclReduceScatter", static_cast<const char*>(from), static_cast<char*>(to),
                     bytes * rank->clique->ranks.size(), bytes, share, type, reduction, 0, stream});
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t share, ncclDataType_t type,
                           ncclComm_t rank, cudaStream_t stream) {
  const std::size_t bytes = share * bytes_of(type);
  return call(rank, {"ncclAllGather", static_cast<const char*>(from), static_cast<char*>(to), bytes,
                     bytes * rank->clique->ranks.size(), share, type, ncclSum, 0, stream});
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t rank, cudaStream_t stream) {
  const std::size_t bytes = count * bytes_of(type);
  return call(rank, {"ncclBroadcast", static_cast<const char*>(from), static_cast<char*>(to), bytes, bytes,
                     count, type, ncclSum, root, stream});
}

namespace tapeformer::cuda {

const NcclFunctions& nccl() {
  static const NcclFunctions functions{
      ncclGetVersion,        ncclGetErrorString, ncclGetLastError, ncclGetUniqueId, ncclCommInitRankConfig,
      ncclCommGetAsyncError, ncclCommFinalize,   ncclCommDestroy,  ncclCommAbort,   ncclAllReduce,
      ncclReduceScatter,     ncclAllGather,      ncclBroadcast};
  if (!nccl_library().why_missing.empty()) throw DeviceError(nccl_library().why_missing);
  return functions;
}

}  // namespace tapeformer::cuda
