#include <sys/statvfs.h>
#include <tapeformer/autograd/communication/nccl_engine.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace tapeformer {
namespace {

using cuda::check;
using Clock = std::chrono::steady_clock;

constexpr const char* kLate = "; see whether one of them has stopped, or try a longer limit";

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The remedy for a result of NCCL, whose own text for full shared memory is that a system call has failed.
std::string remedy(ncclResult_t result) {
  if (result == ncclRemoteError) return "another rank has ended; see its message";
  struct statvfs memory;
  if (result != ncclSystemError || statvfs("/dev/shm", &memory) != 0)
    return "try NCCL_DEBUG=WARN, which says more";
  return format(
      "/dev/shm, which ranks of one machine share, has {} of {} MiB left; if that is little try --ipc=host "
      "or --shm-size=1g where the container is started, else NCCL_DEBUG=WARN, which says more",
      memory.f_bavail * memory.f_frsize >> 20, memory.f_blocks * memory.f_frsize >> 20);
}

}  // namespace

std::string nccl_failure_text(ncclResult_t result, ncclComm_t communicator) {
  std::string text = cuda::nccl().error_string(result);
  const char* const last = cuda::nccl().last_error(communicator);
  if (last != nullptr && *last != '\0') text += format(" ({})", last);
  text.erase(std::remove(text.begin(), text.end(), '\n'), text.end());
  return text + "; " + remedy(result);
}

namespace {

bool has_happened(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) static_cast<void>(cudaGetLastError());
  return status == cudaSuccess;
}

double seconds_between(cudaEvent_t from, cudaEvent_t to) {
  float milliseconds = 0;
  return cudaEventElapsedTime(&milliseconds, from, to) == cudaSuccess ? milliseconds / 1000.0 : 0;
}

}  // namespace

NcclOperation::NcclOperation() {
  for (cudaEvent_t* event : {&begun, &done, &reached})
    check(cudaEventCreateWithFlags(event, cudaEventDefault), "making an event");
}

NcclOperation::~NcclOperation() {
  for (const cudaEvent_t event : {begun, done, reached}) static_cast<void>(cudaEventDestroy(event));
}

NcclEngine::NcclEngine(int rank, int size, int device, const ncclUniqueId& id, double limit_seconds)
    : rank_(rank),
      size_(size),
      device_(device),
      limit_seconds_(limit_seconds > 0 ? limit_seconds : std::numeric_limits<double>::infinity()) {
  cuda::device_state(device_);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  check(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming), "making an event");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclResult_t result = nccl_.init(&communicator_, size_, id, rank_, &config);
  if (result == ncclInProgress || result == ncclSuccess) result = settled();
  if (result != ncclSuccess) {
    const std::string why = result == ncclInProgress ? too_long("to join") + kLate
                                                     : format("NCCL cannot connect rank {}: {}", rank_,
                                                              nccl_failure_text(result, communicator_));
    if (communicator_ != nullptr) nccl_.abort(communicator_);
    drop_stream();
    throw CommunicationError("[nccl] " + why);
  }
  watcher_ = std::thread([this] { watch(); });
}

NcclEngine::~NcclEngine() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_ending_ = true;
    changed_.notify_one();
  }
  watcher_.join();
  cuda::used_device_state(device_);
  if (failure_) {
    cuda::set_failure(device_, nullptr);
  } else {
    // A rank that ends because of an error cannot wait for the others.
    const ncclResult_t result =
        std::uncaught_exceptions() > 0 ? ncclInvalidUsage : nccl_.finalize(communicator_);
    const bool is_whole = (result == ncclSuccess || result == ncclInProgress) && settled() == ncclSuccess;
    static_cast<void>(is_whole ? nccl_.destroy(communicator_) : nccl_.abort(communicator_));
  }
  drop_stream();
}

void NcclEngine::drop_stream() noexcept {
  static_cast<void>(cudaEventDestroy(ready_));
  static_cast<void>(cudaStreamDestroy(stream_));
}

std::string NcclEngine::too_long(const char* what) const {
  return format("rank {} has waited {} s for all {} ranks {}", rank_, limit_seconds_, size_, what);
}

std::string NcclEngine::refusal(const NcclOperation& operation, ncclResult_t result) const {
  return format("{}NCCL has failed on rank {}{}: {}", operation.name(), rank_, operation.got(),
                nccl_failure_text(result, communicator_));
}

/// The result of the last call; ncclInProgress if it has not ended within the limit.
ncclResult_t NcclEngine::settled() {
  const Clock::time_point begin = Clock::now();
  for (int looks = 0;; ++looks) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = nccl_.async_error(communicator_, &state);
    if (result != ncclSuccess) return result;
    if (state != ncclInProgress || seconds_since(begin) > limit_seconds_) return state;
    if (looks < 1000) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

ncclResult_t NcclEngine::issue(const Communicator::Request& request) {
  const Tensor& x = request.x;
  char* const to = static_cast<char*>(x.state()->storage->data);
  const auto bytes = static_cast<std::size_t>(x.bytes()), elements = static_cast<std::size_t>(x.elements()),
             size = static_cast<std::size_t>(size_), own = bytes / size * static_cast<std::size_t>(rank_);
  const ncclDataType_t type = x.dtype() == DType::f64    ? ncclFloat64
                              : x.dtype() == DType::bf16 ? ncclBfloat16
                                                         : ncclFloat32;
  switch (request.collective) {
    case Collective::all_reduce:
      return nccl_.all_reduce(to, to, elements, type, ncclSum, communicator_, stream_);
    case Collective::reduce_scatter:
      return nccl_.reduce_scatter(to, to + own, elements / size, type, ncclSum, communicator_, stream_);
    case Collective::all_gather:
      return nccl_.all_gather(to + own, to, bytes / size, ncclUint8, communicator_, stream_);
    case Collective::broadcast: return nccl_.broadcast(to, to, bytes, ncclUint8, 0, communicator_, stream_);
  }
  return ncclInvalidUsage;
}

std::shared_ptr<NcclOperation> NcclEngine::start(const Communicator::Request& request, Index step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  const cuda::DeviceState& state = cuda::device_state(device_);
  collect();
  if (spare_.empty()) spare_.push_back(std::make_shared<NcclOperation>());
  const std::shared_ptr<NcclOperation> operation = std::move(spare_.back());
  spare_.pop_back();
  operation->collective = request.collective;
  operation->type = request.x.dtype();
  operation->elements = request.x.elements();
  operation->step = step;
  operation->is_awaited = operation->is_running = false;
  check(cudaEventRecord(ready_, state.kernels), "recording an event");
  check(cudaStreamWaitEvent(stream_, ready_, 0), "waiting for kernels");
  check(cudaEventRecord(operation->begun, stream_), "recording an event");
  ncclResult_t result = issue(request);
  if (result == ncclSuccess || result == ncclInProgress) result = settled();
  if (result == ncclInProgress) {
    fail(operation->name() + too_long("to connect") + operation->got() + kLate);
  } else if (result != ncclSuccess) {
    fail(refusal(*operation, result));
  }
  if (failure_) std::rethrow_exception(failure_);
  check(cudaEventRecord(operation->done, stream_), "recording an event");
  operations_.push_back(operation);
  changed_.notify_one();
  return operation;
}

void NcclEngine::await(NcclOperation& operation) {
  cuda::refuse_in_capture("a wait for other GPUs");
  const cuda::DeviceState& state = cuda::device_state(device_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    check(cudaEventRecord(operation.reached, state.kernels), "recording an event");
    check(cudaStreamWaitEvent(state.kernels, operation.done, 0), "waiting for other GPUs");
    operation.is_awaited = true;
  }
  cuda::wait_if_host_readable(state.kernels, "waiting for other GPUs");
  throw_if_failed();
}

void NcclEngine::abandon(NcclOperation& operation) noexcept {
  const cuda::DeviceState& state = cuda::used_device_state(device_);
  if (operation.is_awaited) return;
  // Captured work does not wait, and host-readable memory is not released in the stream's order.
  const bool host_waits = state.captured != nullptr || cuda::is_host_readable();
  static_cast<void>(host_waits ? cudaEventSynchronize(operation.done)
                               : cudaStreamWaitEvent(state.kernels, operation.done, 0));
}

void NcclEngine::throw_if_failed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

CommunicationTime NcclEngine::time() {
  const std::lock_guard<std::mutex> lock(mutex_);
  cuda::device_state(device_);
  collect();
  return time_;
}

/// Collects the times of finished operations, without waiting.
void NcclEngine::collect() {
  while (!operations_.empty() && operations_.front().use_count() == 1 &&
         has_happened(operations_.front()->done)) {
    const NcclOperation& operation = *operations_.front();
    if (operation.is_awaited && !has_happened(operation.reached)) return;
    time_.busy += seconds_between(operation.begun, operation.done);
    if (operation.is_awaited)
      time_.waited += std::max(0.0, seconds_between(operation.reached, operation.done));
    spare_.push_back(operations_.front());
    operations_.pop_front();
  }
}

/// Ends the running operations, so that nothing waits for them any longer.
void NcclEngine::fail(const std::string& message) {
  failure_ = std::make_exception_ptr(CommunicationError(message));
  cuda::set_failure(device_, failure_);
  static_cast<void>(nccl_.abort(communicator_));
}

void NcclEngine::look() {
  ncclResult_t state = ncclSuccess;
  ncclResult_t result = nccl_.async_error(communicator_, &state);
  if (result == ncclSuccess && state != ncclInProgress) result = state;
  const auto oldest = std::find_if(operations_.begin(), operations_.end(),
                                   [](const auto& each) { return !has_happened(each->done); });
  if (oldest == operations_.end()) return;
  NcclOperation& operation = **oldest;
  if (result != ncclSuccess) return fail(refusal(operation, result));
  if (!has_happened(operation.begun)) return;
  if (!std::exchange(operation.is_running, true)) operation.seen_running = Clock::now();
  if (seconds_since(operation.seen_running) > limit_seconds_) {
    fail(operation.name() + too_long("to take part") + operation.got() + kLate);
  }
}

void NcclEngine::watch() {
  cuda::used_device_state(device_);
  const auto pause = std::chrono::duration<double>(std::min(1.0, limit_seconds_ / 10));
  std::unique_lock<std::mutex> lock(mutex_);
  while (!is_ending_) {
    if (operations_.empty() || failure_) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, pause, [&] { return is_ending_; });
      if (is_ending_) return;
      look();
      if (!failure_) collect();
    }
  }
}

}  // namespace tapeformer
