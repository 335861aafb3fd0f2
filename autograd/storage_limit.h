#pragma once

#include <tapeformer/autograd/dtype.h>
#include <tapeformer/autograd/shape.h>

#include <limits>
#include <utility>

namespace tapeformer {

/// Limits the bytes of the tensors that this thread makes while the object lives, for models whose sizes come
/// from a file, which may be damaged.
/// Throws: (where a tensor is made) Error
class StorageLimit {
 public:
  /// At most this many bytes from now on. An outer limit is suspended meanwhile.
  explicit StorageLimit(double bytes) : outer_(std::exchange(left, bytes)) {}
  ~StorageLimit() { left = outer_; }
  StorageLimit(const StorageLimit&) = delete;
  StorageLimit& operator=(const StorageLimit&) = delete;

  /// Counts a tensor's bytes against this thread's limit. Throws: Error once it is exceeded
  static void spend(const Shape& shape, DType type);

 private:
  inline static thread_local double left = std::numeric_limits<double>::infinity();
  double outer_;
};

}  // namespace tapeformer
