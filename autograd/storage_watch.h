#pragma once

#include <tapeformer/autograd/storage.h>

#include <functional>
#include <utility>

namespace tapeformer {

/// While one lives, `see` is called with the storage of every tensor that this thread accesses.
class StorageWatch {
 public:
  explicit StorageWatch(std::function<void(const Handle<Storage>&)> see)
      : see_(std::move(see)), outer_(std::exchange(running, this)) {}
  ~StorageWatch() { running = outer_; }
  StorageWatch(const StorageWatch&) = delete;
  StorageWatch& operator=(const StorageWatch&) = delete;

  static void tell(const Handle<Storage>& storage) {
    if (running != nullptr) running->see_(storage);
  }

 private:
  inline static thread_local StorageWatch* running = nullptr;
  std::function<void(const Handle<Storage>&)> see_;
  StorageWatch* outer_;
};

}  // namespace tapeformer
