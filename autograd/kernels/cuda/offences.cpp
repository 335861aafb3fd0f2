#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/cuda/runtime.h>

#include <array>
#include <map>
#include <memory>
#include <utility>

namespace tapeformer::cuda {
namespace {

constexpr std::size_t kWatches = 256;

/// Offences of kernels that are queued, in mapped memory: kernels write there, the host looks.
struct Watches {
  explicit Watches(int device) {
    device_state(device);
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, kWatches * sizeof(Offence), cudaHostAllocMapped | cudaHostAllocPortable),
          "allocating mapped memory");
    here = static_cast<Offence*>(memory);
    void* mapped = nullptr;
    check(cudaHostGetDevicePointer(&mapped, memory, 0), "mapping memory");
    there = static_cast<Offence*>(mapped);
  }
  std::size_t offended() const {
    for (std::size_t i = 0; i < watched; ++i) {
      if (static_cast<const volatile Offence&>(here[i]).position >= 0) return i;
    }
    return watched;
  }

  Offence *here = nullptr, *there = nullptr;
  std::size_t watched = 0;
  std::array<std::function<std::string(const Offence&)>, kWatches> describe;
};

std::mutex& guard() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

/// nullptr until there is something to watch.
std::unique_ptr<Watches>& watches_of(int device) {
  static auto* const of_devices = new std::map<int, std::unique_ptr<Watches>>;
  return (*of_devices)[device];
}

void wait_for_kernels(int device) {
  check(cudaStreamSynchronize(device_state(device).kernels), "waiting for kernels");
}

/// Forgets the watches of kernels that have all run, and throws if one has left an offence.
void settle(Watches& watches) {
  const std::size_t offended = watches.offended(), count = std::exchange(watches.watched, 0);
  std::string message;
  if (offended < count) message = watches.describe[offended](watches.here[offended]);
  for (std::size_t i = 0; i < count; ++i) watches.describe[i] = nullptr;
  if (offended < count) throw ShapeError(message);
}

}  // namespace

Offence* watch_for_offence(int device, std::function<std::string(const Offence&)> describe) {
  const std::lock_guard<std::mutex> lock(guard());
  std::unique_ptr<Watches>& watches = watches_of(device);
  if (!watches) watches = std::make_unique<Watches>(device);
  if (watches->watched == kWatches) {
    wait_for_kernels(device);
    settle(*watches);
  }
  const std::size_t at = watches->watched++;
  watches->here[at] = {-1, 0};
  watches->describe[at] = std::move(describe);
  return watches->there + at;
}

void report_offences(int device) {
  const std::lock_guard<std::mutex> lock(guard());
  const std::unique_ptr<Watches>& watches = watches_of(device);
  if (!watches || watches->offended() == watches->watched) return;
  wait_for_kernels(device);  // one that has left an offence may yet find another before it
  settle(*watches);
}

void finish_kernels(int device) {
  const std::lock_guard<std::mutex> lock(guard());
  wait_for_kernels(device);
  if (const std::unique_ptr<Watches>& watches = watches_of(device)) settle(*watches);
}

}  // namespace tapeformer::cuda
