#pragma once

#include <tapeformer/autograd/communication/communicator.h>

#include <functional>
#include <memory>

namespace tapeformer::reference {

/// Runs `body` as each of `size` ranks, on threads of this process, and returns when all have ended. Sums are
/// taken in the order of the ranks, in f64. The first exception of a rank is thrown again.
void as_ranks(int size, const std::function<void(Communicator&)>& body);

/// To share it: the communicator of as_ranks(), which outlives its body.
inline std::shared_ptr<Communicator> borrowed(Communicator& ranks) {
  return {std::shared_ptr<Communicator>(), &ranks};
}

}  // namespace tapeformer::reference
