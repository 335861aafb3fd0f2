#include <tapeformer/examples/shared/loss_watch.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {

bool LossWatch::is_far_above(double loss, double deviations) {
  constexpr Index kLosses = 50;
  const double most = mean_ + deviations * std::sqrt(variance_);
  const bool is_far = deviations > 0 && losses_ >= kLosses && loss > most;
  const double rate = 1 / static_cast<double>(std::min(losses_ + 1, kLosses));
  const double change = (is_far ? most : loss) - mean_;
  mean_ += rate * change;
  variance_ = (1 - rate) * (variance_ + rate * change * change);
  ++losses_;
  return is_far;
}

}  // namespace tapeformer
