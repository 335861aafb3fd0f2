#pragma once

#include <tapeformer/autograd/communication/communicator.h>
#include <tapeformer/autograd/cuda/nccl_functions.h>
#include <tapeformer/autograd/cuda/runtime.h>
#include <tapeformer/autograd/format.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

/// For nccl.cpp alone.
namespace tapeformer {

/// A request to a GPU. Events mark when it began, when it was done, and when the kernels' stream reached its
/// wait for it.
struct NcclOperation {
  Collective collective{};
  DType type{};
  Index elements = 0, step = 0;
  cudaEvent_t begun = nullptr, done = nullptr, reached = nullptr;
  bool is_awaited = false, is_running = false;
  std::chrono::steady_clock::time_point seen_running;

  NcclOperation();
  ~NcclOperation();
  NcclOperation(const NcclOperation&) = delete;
  NcclOperation& operator=(const NcclOperation&) = delete;

  std::string name() const { return format("[{}] ", name_of(collective)); }
  std::string got() const { return format("; got {}[{}] at step {}", name_of(type), elements, step); }
};

/// A rank of NCCL, with a stream and a thread that watches the running operations.
class NcclEngine {
 public:
  NcclEngine(int rank, int size, int device, const ncclUniqueId& id, double limit_seconds);
  ~NcclEngine();
  NcclEngine(const NcclEngine&) = delete;
  NcclEngine& operator=(const NcclEngine&) = delete;

  std::shared_ptr<NcclOperation> start(const Communicator::Request& request, Index step);
  /// Makes kernels that are queued from now on wait for the operation.
  void await(NcclOperation& operation);
  /// As await(), for an operation without a wait, whose memory is about to be released.
  void abandon(NcclOperation& operation) noexcept;
  void throw_if_failed();
  CommunicationTime time();
  int device() const { return device_; }

 private:
  ncclResult_t issue(const Communicator::Request& request);
  ncclResult_t settled();
  void collect();
  void look();
  void watch();
  void fail(const std::string& message);
  void drop_stream() noexcept;
  std::string too_long(const char* what) const;
  std::string refusal(const NcclOperation& operation, ncclResult_t result) const;

  const cuda::NcclFunctions& nccl_ = cuda::nccl();
  const int rank_, size_, device_;
  const double limit_seconds_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t ready_ = nullptr;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  ncclComm_t communicator_ = nullptr;
  std::exception_ptr failure_;
  std::deque<std::shared_ptr<NcclOperation>> operations_;  // the oldest first, until their times are known
  std::vector<std::shared_ptr<NcclOperation>> spare_;
  CommunicationTime time_;
  bool is_ending_ = false;
  std::thread watcher_;
};

/// NCCL's text for the failure, and a remedy.
std::string nccl_failure_text(ncclResult_t result, ncclComm_t communicator);

}  // namespace tapeformer
