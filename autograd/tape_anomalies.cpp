#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/elementwise.h>
#include <tapeformer/autograd/tape.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

/// Position of the first NaN or infinity, or -1; tensors of other types have none.
Index first_non_finite(const Tensor& x) {
  if (!x.defined() || !is_floating(x.dtype())) return -1;
  Index first = -1;
  const Index count = x.elements();
  dispatch(
      "anomaly", [&](auto on, auto* from) { first = kernels::first_non_finite(on, count, from); }, x);
  return first;
}

}  // namespace

void Tape::check_result(const char* op, const Tensor* inputs, std::size_t count, const Tensor& y) const {
  const Index bad = first_non_finite(y);
  if (bad < 0) return;
  const bool given =
      std::any_of(inputs, inputs + count, [](const Tensor& x) { return first_non_finite(x) >= 0; });
  if (std::isinf(y.at(bad)) && given) return;
  check_finite(op, "forward", y);
}

void Tape::check_finite(const char* op, const char* direction, const Tensor& x) const {
  const Index bad = first_non_finite(x);
  if (bad < 0) return;
  throw TapeError(std::string("[") + op + "] " + direction + " gave the first value that is not finite: " +
                  std::to_string(x.at(bad)) + " at element " + std::to_string(bad) + " of " + x.describe() +
                  "; try a lower learning rate, or look at this operation's inputs");
}

}  // namespace tapeformer
