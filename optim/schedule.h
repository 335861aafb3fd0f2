#pragma once

#include <tapeformer/autograd/shape.h>

#include <string>

namespace tapeformer {

struct ScheduleConfig {
  std::string kind = "constant";  ///< or "inverse_square_root", "cosine", "warmup_stable_decay"
  double learning_rate = 1e-3;    ///< the highest, at the end of the warm-up
  Index warmup_steps = 0;         ///< at least 1 for inverse_square_root; else 0 acts as 1: the peak at once
  Index total_steps = 0;          ///< cosine, warmup_stable_decay: the step that reaches the minimum
  double minimum = 0;             ///< cosine, warmup_stable_decay: the learning rate from there on
  double cooldown = 0.4;          ///< warmup_stable_decay: the share of total_steps over which the rate falls
};

/// True for a kind of schedule that reaches its minimum at total_steps.
bool has_end(const std::string& kind);

/// The learning rate as a function of the step alone. Steps count from 0: the n-th update uses
/// schedule(n - 1).
/// Math, with n = step + 1, w = max(1, warmup_steps) and peak = learning_rate; all rise linearly, peak n / w,
/// up to n = w, where each has its peak:
///   constant:             peak
///   inverse_square_root:  peak sqrt(w / n)
///   cosine:               minimum + (peak - minimum) (1 + cos(pi (n - w) / (total_steps - w))) / 2
///   warmup_stable_decay:  peak up to s = max(w, (1 - cooldown) total_steps), and then in a straight line
///                         peak + (minimum - peak) (n - s) / (total_steps - s); with cooldown 1 it falls from
///                         the warm-up's end on
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 5.3; Loshchilov and Hutter 2017, arXiv:1608.03983;
///          Hu et al. 2024, arXiv:2404.06395, section 4, with the linear cooldown of Hägele et al. 2024,
///          arXiv:2405.18392
class Schedule {
 public:
  /// Throws: Error that names the field if the config makes no sense.
  explicit Schedule(const ScheduleConfig& config);
  /// The learning rate of the step, counted from 0.
  double operator()(Index step) const;
  /// The configuration of the schedule.
  const ScheduleConfig& config() const { return config_; }

 private:
  ScheduleConfig config_;
};

}  // namespace tapeformer
