#include <tapeformer/examples/shared/phase_clock.h>
#include <tapeformer/examples/shared/progress.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <numeric>

namespace tapeformer {
namespace {

constexpr std::array kOfAStep = {Phase::forward, Phase::backward, Phase::update};
constexpr std::array kBesideSteps = {Phase::start,   Phase::batches, Phase::validation, Phase::checkpoints,
                                     Phase::samples, Phase::log,     Phase::waiting};

const char* name_of(Phase phase) { return kPhaseNames[static_cast<std::size_t>(phase)]; }

}  // namespace

PhaseClock::PhaseClock() : since_(now_seconds()) {}

Phase PhaseClock::enter(Phase phase) {
  const double now = now_seconds();
  seconds_[static_cast<std::size_t>(current_)] += now - since_;
  since_ = now;
  return std::exchange(current_, phase);
}

std::array<double, kPhaseNames.size()> PhaseClock::seconds() const {
  PhaseClock settled = *this;
  settled.enter(current_);
  return settled.seconds_;
}

double PhaseClock::total() const {
  const auto parts = seconds();
  return std::accumulate(parts.begin(), parts.end(), 1e-9);
}

std::string PhaseClock::text() const {
  const auto parts = seconds();
  const double all = total();
  const auto share = [&](Phase phase) { return 100 * parts[static_cast<std::size_t>(phase)] / all; };
  double steps = 0;
  for (const Phase phase : kOfAStep) steps += share(phase);
  const std::string inside =
      joined(kOfAStep, ", ", [&](Phase phase) { return format("{} {:.1f}", name_of(phase), share(phase)); });
  std::string text = format("{}: steps {:.1f} % ({})", duration_text(all), steps, inside);
  for (const Phase phase : kBesideSteps)
    if (phase != Phase::waiting || share(phase) > 0)
      text += format(", {} {:.1f} %", name_of(phase), share(phase));
  return text;
}

nlohmann::ordered_json PhaseClock::json() const {
  const auto parts = seconds();
  nlohmann::ordered_json result;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (static_cast<Phase>(i) != Phase::waiting || parts[i] > 0)
      result[kPhaseNames[i]] = std::round(1e3 * parts[i]) / 1e3;
  }
  return result;
}

}  // namespace tapeformer
