#include <tapeformer/autograd/communication/nccl.h>
#include <tapeformer/autograd/communication/nccl_engine.h>

#include <cstring>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {
namespace {

constexpr int kOldestNccl = 21400;  // the first whose calls need not block
constexpr Index kIdWords = sizeof(ncclUniqueId) / sizeof(std::int32_t);

std::string version_text(int version) {
  return format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

class Awaited : public Communication::State {
 public:
  Awaited(std::shared_ptr<NcclEngine> engine, const Communicator::Request& request, Index step)
      : x_(request.x), engine_(std::move(engine)), operation_(engine_->start(request, step)) {}
  ~Awaited() override { engine_->abandon(*operation_); }
  void wait() override { engine_->await(*operation_); }

 private:
  Tensor x_;  // not released before the kernels' stream, which orders the pool's memory, waits
  std::shared_ptr<NcclEngine> engine_;
  std::shared_ptr<NcclOperation> operation_;
};

/// A rank's message to the others: the reason why it cannot take part, or its library and GPU.
struct Introduction {
  std::string problem, version, gpu;
};

/// Also makes the id on rank 0.
Introduction introduce_rank(int rank, int device, ncclUniqueId* id) {
  Introduction own;
  try {
    if (device < 0 || device >= cuda::device_count()) {
      throw DeviceError(format("there is no cuda:{}: {}; start as many ranks on each machine as it has GPUs",
                               device, cuda::availability()));
    }
    cuda::device_state(device);
    int version = 0;
    cuda::nccl().get_version(&version);
    own.version = version_text(version);
    if (version < kOldestNccl) {
      throw DeviceError(
          format("NCCL is too old; got {}; install {} or newer", own.version, version_text(kOldestNccl)));
    }
    cudaDeviceProp properties;
    cuda::check(cudaGetDeviceProperties(&properties, device), "asking for a device's properties");
    for (const char byte : properties.uuid.bytes)
      own.gpu += format("{:02x}", int{static_cast<unsigned char>(byte)});
    const ncclResult_t result = rank == 0 ? cuda::nccl().get_unique_id(id) : ncclSuccess;
    if (result != ncclSuccess)
      throw DeviceError(format("NCCL has failed: {}", nccl_failure_text(result, nullptr)));
  } catch (const DeviceError& error) {
    own.problem = error.what();
  }
  return own;
}

/// Throws on all ranks alike unless each can take part, all by the same NCCL, on GPUs of their own.
void compare(const std::vector<Introduction>& ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    if (!ranks[rank].problem.empty())
      throw CommunicationError(format("[nccl] rank {} cannot take part: {}", rank, ranks[rank].problem));
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].version != ranks[0].version) {
      throw CommunicationError(format(
          "[nccl] all ranks need the same NCCL; got {} on rank 0 and {} on rank {}; install one of them "
          "everywhere",
          ranks[0].version, ranks[rank].version, rank));
    }
    for (std::size_t other = 0; other < rank; ++other) {
      if (ranks[rank].gpu != ranks[other].gpu) continue;
      throw CommunicationError(format(
          "[nccl] each rank needs a GPU of its own; got one for both rank {} and rank {}; start as many "
          "ranks on each machine as it has GPUs, and see what CUDA_VISIBLE_DEVICES hides",
          other, rank));
    }
  }
}

ncclUniqueId agreed_id(Communicator& processes, int device) {
  ncclUniqueId id{};
  const Introduction own = introduce_rank(processes.rank(), device, &id);
  std::vector<Introduction> ranks;
  for (const std::string& told : processes.gather(own.version + "\n" + own.gpu + "\n" + own.problem)) {
    Introduction& rank = ranks.emplace_back();
    std::istringstream lines(told);
    std::getline(std::getline(lines, rank.version), rank.gpu);
    std::getline(lines, rank.problem, '\0');
  }
  compare(ranks);
  const Tensor words = Tensor::empty({kIdWords}, DType::i32, Device::cpu());
  std::memcpy(words.raw(), &id, sizeof id);
  processes.broadcast(words).wait();
  std::memcpy(&id, words.raw(), sizeof id);
  return id;
}

}  // namespace

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Communicator> processes, std::shared_ptr<NcclEngine> engine)
      : Communicator(processes->rank(), processes->size()),
        processes_(std::move(processes)),
        engine_(std::move(engine)) {}

  CommunicationTime time() const override {
    CommunicationTime sum = processes_->time();
    const CommunicationTime own = engine_->time();
    sum.busy += own.busy;
    sum.waited += own.waited;
    return sum;
  }
  void set_step(Index step) override {
    engine_->throw_if_failed();
    processes_->set_step(step);
    step_ = step;
  }

 protected:
  Communication start(const Request& request) override {
    cuda::refuse_in_capture("communication between processes");
    engine_->throw_if_failed();
    const Device device = request.x.device(), own = Device::cuda(engine_->device());
    if (!device.is_cuda()) return processes_->start(request);
    if (device != own) {
      throw DeviceError(format("[{}] the tensor must be on {}, this rank's; got x={} on {}",
                               name_of(request.collective), own.text(), request.x.describe(), device.text()));
    }
    return Communication(std::make_shared<Awaited>(engine_, request, step_));
  }

 private:
  std::shared_ptr<Communicator> processes_;
  std::shared_ptr<NcclEngine> engine_;
  Index step_ = 0;
};

std::shared_ptr<Communicator> nccl_communicator(std::shared_ptr<Communicator> processes, int device,
                                                double limit_seconds) {
  if (processes->size() == 1) return processes;
  const ncclUniqueId id = agreed_id(*processes, device);
  auto engine = std::make_shared<NcclEngine>(processes->rank(), processes->size(), device, id, limit_seconds);
  return std::make_shared<NcclCommunicator>(std::move(processes), std::move(engine));
}

}  // namespace tapeformer
