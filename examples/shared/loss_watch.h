#pragma once

#include <tapeformer/autograd/config/config_field.h>

namespace tapeformer {

/// Finds losses that are far above those before them. Mean and variance are of about the last 50 losses;
/// before that many nothing counts as far. A loss that is far enters them as the bound that it exceeds, so
/// that a higher level becomes usual after a while.
class LossWatch {
 public:
  /// True if a finite `loss` lies more than `deviations` standard deviations above the mean; takes it in.
  /// With 0 deviations none does.
  bool is_far_above(double loss, double deviations);
  double mean() const { return mean_; }

  void describe(const FieldVisitor& field) {
    field("losses", losses_);
    field("mean", mean_);
    field("variance", variance_);
  }

 private:
  Index losses_ = 0;
  double mean_ = 0, variance_ = 0;
};

}  // namespace tapeformer
