#include <tapeformer/autograd/cuda/runtime.h>

#include <algorithm>

namespace tapeformer::cuda {
namespace {

constexpr std::size_t kWatches = 256;

}  // namespace

/// Errors of queued kernels, in pinned memory, which has one address for the host and all devices: kernels
/// write them, the host reads them.
class Watches {
 public:
  explicit Watches(int device) {
    device_state(device);
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, kWatches * sizeof(DeviceErrorSlot), cudaHostAllocPortable),
          "allocating pinned memory");
    slots_ = static_cast<DeviceErrorSlot*>(memory);
  }

  bool is_full() const { return count_ == kWatches; }
  DeviceErrorSlot* add(std::function<std::string(const DeviceErrorSlot&)> describe) {
    slots_[count_] = {-1, 0};
    describe_[count_] = std::move(describe);
    return slots_ + count_++;
  }
  bool has_error() const { return failed() < count_; }
  /// Takes the first error as a message; empty if there is none.
  std::string settle() {
    const std::size_t first = failed();
    std::string message;
    if (first < count_) message = describe_[first](slots_[first]);
    for (std::size_t i = first; i < count_; ++i) slots_[i] = {-1, 0};
    return message;
  }
  void clear() {
    for (std::size_t i = 0; i < count_; ++i) describe_[i] = nullptr;
    count_ = 0;
  }

 private:
  std::size_t failed() const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (static_cast<const volatile DeviceErrorSlot&>(slots_[i]).position >= 0) return i;
    }
    return count_;
  }

  DeviceErrorSlot* slots_ = nullptr;
  std::size_t count_ = 0;
  std::array<std::function<std::string(const DeviceErrorSlot&)>, kWatches> describe_;
};

namespace {

struct DeviceWatches {
  std::mutex guard;                                 // of what follows
  std::shared_ptr<Watches> queued;                  // for kernels that run once
  std::vector<std::shared_ptr<Watches>> launched;   // for graphs that may be running
  std::vector<std::shared_ptr<Watches>> of_graphs;  // all of them; free ones are held only here
};

DeviceWatches& watches_of(int device) {
  static auto* const of_devices = new std::array<DeviceWatches, kMostDevices>;
  return (*of_devices)[static_cast<std::size_t>(device)];
}

/// Separate from the watches, whose guard is held during waits for kernels.
struct Failures {
  std::atomic<bool> any{false};
  std::mutex guard;  // of what follows
  std::map<int, std::exception_ptr> of_devices;
};
Failures& failures() {
  static Failures* const all = new Failures;
  return *all;
}

void throw_failure(int device) {
  if (!failures().any) return;
  const std::lock_guard<std::mutex> lock(failures().guard);
  const auto found = failures().of_devices.find(device);
  if (found != failures().of_devices.end()) std::rethrow_exception(found->second);
}

void wait_for_kernels(int device) {
  const cudaError_t status = cudaStreamSynchronize(device_state(device).kernels);
  throw_failure(device);
  check(status, "waiting for kernels");
}

/// To be called when all kernels have run: throws if one has left a device error.
void settle(DeviceWatches& watches) {
  std::string message;
  if (watches.queued) {
    message = watches.queued->settle();
    watches.queued->clear();
  }
  for (const std::shared_ptr<Watches>& launched : watches.launched) {
    const std::string another = launched->settle();
    if (message.empty()) message = another;
  }
  watches.launched.clear();
  if (!message.empty()) throw ShapeError(message);
}

}  // namespace

void watch_for_device_error(int device, std::function<std::string(const DeviceErrorSlot&)> describe,
                            const std::function<void(DeviceErrorSlot*)>& queue) {
  DeviceWatches& watches = watches_of(device);
  const std::lock_guard<std::mutex> lock(watches.guard);
  if (captured_here != nullptr) {
    if (captured_here->watches->is_full()) throw NotCapturable("[cuda] too many checks for one graph");
    return queue(captured_here->watches->add(std::move(describe)));
  }
  if (!watches.queued) watches.queued = std::make_shared<Watches>(device);
  if (watches.queued->is_full()) {
    wait_for_kernels(device);
    settle(watches);
  }
  queue(watches.queued->add(std::move(describe)));
}

std::shared_ptr<Watches> watches_for_graph(int device) {
  const std::lock_guard<std::mutex> lock(watches_of(device).guard);
  std::vector<std::shared_ptr<Watches>>& all = watches_of(device).of_graphs;
  auto found = std::find_if(all.begin(), all.end(), [](const auto& each) { return each.use_count() == 1; });
  if (found == all.end()) found = all.insert(all.end(), std::make_shared<Watches>(device));
  (*found)->clear();
  return *found;
}

void watch_launch(int device, const std::shared_ptr<Watches>& watches) {
  const std::lock_guard<std::mutex> lock(watches_of(device).guard);
  std::vector<std::shared_ptr<Watches>>& launched = watches_of(device).launched;
  if (std::find(launched.begin(), launched.end(), watches) == launched.end()) launched.push_back(watches);
}

void report_device_errors(int device) {
  if (is_capturing()) return;  // a capture must not wait
  throw_failure(device);
  DeviceWatches& watches = watches_of(device);
  const std::lock_guard<std::mutex> lock(watches.guard);
  const auto has_error = [](const auto& each) { return each->has_error(); };
  const bool found = (watches.queued && watches.queued->has_error()) ||
                     std::any_of(watches.launched.begin(), watches.launched.end(), has_error);
  if (!found) return;
  wait_for_kernels(device);  // a kernel may still find an earlier error
  settle(watches);
}

void finish_kernels(int device) {
  refuse_in_capture("waiting for the device");
  DeviceWatches& watches = watches_of(device);
  const std::lock_guard<std::mutex> lock(watches.guard);
  wait_for_kernels(device);
  settle(watches);
}

void set_failure(int device, std::exception_ptr failure) {
  const std::lock_guard<std::mutex> lock(failures().guard);
  if (failure) {
    failures().of_devices[device] = std::move(failure);
  } else {
    failures().of_devices.erase(device);
  }
  failures().any = !failures().of_devices.empty();
}

}  // namespace tapeformer::cuda
