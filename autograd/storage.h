#pragma once

#include <tapeformer/autograd/device.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace tapeformer {

/// Bytes from the process-wide pool, aligned to 64. Freed blocks are kept for the next request of their size
/// class, so a training step that repeats its shapes asks the system for no memory. Thread-safe. The first
/// call also tells malloc, for the whole process, to keep freed memory.
void* pool_allocate(std::size_t bytes);
/// `bytes` must be as in the call of pool_allocate().
void pool_free(void* block, std::size_t bytes);

/// Statistics of the pool.
struct PoolStatistics {
  std::int64_t held_bytes = 0;       ///< bytes taken from the system and not given back
  std::int64_t in_use_bytes = 0;     ///< of those, in use now
  std::int64_t peak_bytes = 0;       ///< the most ever in use
  std::int64_t system_requests = 0;  ///< requests for memory from the system
};
/// The statistics of the CPU's pool in this process. With several threads that allocate, the peak may be too
/// high by the small blocks that each keeps for itself, less than 1 MiB, and is never too low.
PoolStatistics pool_statistics();

/// An allocator for standard containers, whose memory then comes from the pool.
template <class T>
struct PoolAllocator {
  using value_type = T;
  PoolAllocator() = default;
  template <class U>
  PoolAllocator(const PoolAllocator<U>&) {}  // NOLINT: containers rebind implicitly
  T* allocate(std::size_t count) { return static_cast<T*>(pool_allocate(count * sizeof(T))); }
  void deallocate(T* block, std::size_t count) { pool_free(block, count * sizeof(T)); }
  template <class U>
  bool operator==(const PoolAllocator<U>&) const {
    return true;
  }
  template <class U>
  bool operator!=(const PoolAllocator<U>&) const {
    return false;
  }
};
/// A vector for code that runs in every training step.
template <class T>
using PooledVector = std::vector<T, PoolAllocator<T>>;

/// Base of objects counted by Handle<T>; lives in the pool.
struct Pooled {
  std::atomic<int> references{0};
  static void* operator new(std::size_t bytes) { return pool_allocate(bytes); }
  static void operator delete(void* object, std::size_t bytes) { pool_free(object, bytes); }
};

/// A counted pointer, like std::shared_ptr without its control block.
template <class T>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T* object) : object_(object) { retain(); }
  Handle(const Handle& other) : object_(other.object_) { retain(); }
  Handle(Handle&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Handle& operator=(Handle other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Handle() {
    if (object_ != nullptr && object_->references.fetch_sub(1, std::memory_order_acq_rel) == 1)
      delete object_;
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  bool is_sole() const {
    return object_ != nullptr && object_->references.load(std::memory_order_acquire) == 1;
  }

 private:
  void retain() {
    if (object_ != nullptr) object_->references.fetch_add(1, std::memory_order_relaxed);
  }
  T* object_ = nullptr;
};

/// The bytes behind one or more tensors.
struct Storage : Pooled {
  /// `size` bytes from the pool of the device `where`, contents undefined.
  Storage(std::size_t size, Device where);
  /// GPU memory that Tensor::to() may fill without waiting for the queued kernels.
  struct ForUpload {
    std::size_t size;  ///< in bytes
    Device where;      ///< a GPU
  };
  /// Throws: DeviceError if the GPU has no memory left.
  explicit Storage(const ForUpload& upload);
  /// Memory allocated elsewhere; `release` gives it back.
  Storage(void* adopted, std::size_t size, std::function<void()> release_adopted);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data = nullptr;           ///< the first byte, on the device
  std::size_t bytes = 0;          ///< the number of bytes
  Device device;                  ///< the device of the bytes
  std::function<void()> release;  ///< empty for pool memory
};

}  // namespace tapeformer
