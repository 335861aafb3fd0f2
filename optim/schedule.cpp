#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/optim/schedule.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

constexpr double kPi = 3.14159265358979323846;

template <class... Values>
void require(bool valid, const char* message, const Values&... values) {
  if (!valid) throw Error("[schedule] " + format(message, values...));
}

}  // namespace

bool has_end(const std::string& kind) { return kind == "cosine" || kind == "warmup_stable_decay"; }

Schedule::Schedule(const ScheduleConfig& config) : config_(config) {
  const bool root = config.kind == "inverse_square_root", ends = has_end(config.kind);
  require(root || ends || config.kind == "constant",
          "kind must be constant, inverse_square_root, cosine or warmup_stable_decay; got {}", config.kind);
  require(std::isfinite(config.learning_rate) && config.learning_rate >= 0,
          "learning_rate must not be negative; got {}", config.learning_rate);
  require(config.warmup_steps >= (root ? 1 : 0), "{}; got {}",
          root ? "inverse_square_root needs warmup_steps of at least 1" : "warmup_steps must not be negative",
          config.warmup_steps);
  require(!ends || config.total_steps > config.warmup_steps,
          "{} needs more total_steps than warmup_steps; got {} and {}", config.kind, config.total_steps,
          config.warmup_steps);
  require(config.minimum >= 0 && (!ends || config.minimum <= config.learning_rate),
          "minimum must be between 0 and learning_rate; got {}", config.minimum);
  require(config.cooldown > 0 && config.cooldown <= 1, "cooldown must be above 0 and at most 1; got {}",
          config.cooldown);
}

double Schedule::operator()(Index step) const {
  const auto n = static_cast<double>(step + 1),
             warmup = static_cast<double>(std::max<Index>(1, config_.warmup_steps));
  const double peak = config_.learning_rate;
  if (n < warmup) return peak * n / warmup;
  if (n == warmup || config_.kind == "constant") return peak;
  if (config_.kind == "inverse_square_root") return peak * std::sqrt(warmup / n);
  const auto total = static_cast<double>(config_.total_steps);
  if (n >= total) return config_.minimum;
  if (config_.kind == "warmup_stable_decay") {
    const double start = std::max(warmup, (1 - config_.cooldown) * total);
    return n <= start ? peak : peak + (config_.minimum - peak) * (n - start) / (total - start);
  }
  const double progress = (n - warmup) / (total - warmup);
  return config_.minimum + (peak - config_.minimum) * (1 + std::cos(kPi * progress)) / 2;
}

}  // namespace tapeformer
