#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/kernels/elementwise.h>
#include <tapeformer/autograd/tape/anomalies.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

enum class Sought { nan, nan_or_infinity };

/// The first position of what is sought; -1 if there is none, or x is not floating.
Index first(Sought sought, const Tensor& x) {
  if (!x.defined() || !is_floating(x.dtype())) return -1;
  Index found = -1;
  dispatch("anomaly", operands(x), [&](auto on, auto* from) {
    kernels::first_non_finite(on, x.elements(), from, sought == Sought::nan, &found);
  });
  return found;
}

[[noreturn]] void throw_anomaly(const char* op, const char* direction, const Tensor& x, Index at) {
  throw AnomalyError(format("[{}] {} gave the first value that is not finite: {} at element {} of {}", op,
                            direction, std::isnan(x.at(at)) ? NAN : x.at(at), at, x.describe()),
                     "try a lower learning rate, or look at this operation's inputs");
}

}  // namespace

void Tape::check_result(const char* op, const Tensor* inputs, std::size_t count, const Tensor& y) const {
  const Index bad = first(Sought::nan_or_infinity, y);
  if (bad < 0) return;
  const Index nan = first(Sought::nan, y);  // an infinity may come before it
  if (nan >= 0) throw_anomaly(op, "forward", y, nan);
  const bool given = std::any_of(inputs, inputs + count,
                                 [](const Tensor& x) { return first(Sought::nan_or_infinity, x) >= 0; });
  if (!given) throw_anomaly(op, "forward", y, bad);
}

void Tape::check_finite(const char* op, const Tensor& gradient) const {
  const Index bad = first(Sought::nan_or_infinity, gradient);
  if (bad >= 0) throw_anomaly(op, "backward", gradient, bad);
}

}  // namespace tapeformer
