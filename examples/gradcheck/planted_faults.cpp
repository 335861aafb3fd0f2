#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/gradcheck/planted_faults.h>
#include <tapeformer/examples/shared/progress.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>

namespace tapeformer {
namespace {

constexpr double kZeroGradient = 1e-9;  // a smaller gradient is zero in theory

double largest_of(const Tensor& gradient) {
  const Tensor x = gradient.to(Device::cpu());
  double largest = 0;
  for (Index i = 0; i < x.elements(); ++i) largest = std::max(largest, std::fabs(x.at(i)));
  return largest;
}

std::string place_of(const Contribution& contribution) {
  return std::string(contribution.op) + ", input " + std::to_string(contribution.input);
}

/// One gradient contribution in a pass without faults.
struct Seen {
  Contribution contribution;
  double largest;
  Shape shape;
};

/// The axis of the keys, or -1 if there is none. Attention operations take keys and values, or a packed
/// tensor, as [B, length, ...]; a softmax takes scores as [..., keys].
int key_axis(const Seen& seen) {
  const std::string op = seen.contribution.op;
  if (op == "softmax") return static_cast<int>(seen.shape.rank()) - 1;
  const bool attends = op.find("attention") != std::string::npos;
  const bool has_keys = seen.contribution.input > 0 || op == "packed_attention";  // input 0 is the query
  return attends && has_keys && seen.shape.rank() >= 3 ? 1 : -1;  // weights have no axis of keys
}

Tensor rolled(const Tensor& x, int axis) {
  const Index size = x.size(axis);
  return concat({slice(x, axis, size - 1, 1), slice(x, axis, 0, size - 1)}, axis);
}

GradientWrapper at(const Contribution& place, const std::function<Tensor(const Tensor&)>& change) {
  return [place, change](const Contribution& contribution, const Tensor& gradient) {
    const bool here = contribution.node == place.node && contribution.input == place.input;
    return here ? change(gradient) : gradient;
  };
}

/// Makes every further contribution cancel the one before it.
GradientWrapper only_the_last(std::int32_t value) {
  return [value, last = Tensor()](const Contribution& contribution, const Tensor& gradient) mutable {
    if (contribution.tensor != value) return gradient;
    const Tensor before = std::exchange(last, gradient);
    return before.defined() ? gradient - before : gradient;
  };
}

struct Fault {
  std::string name, place;
  GradientWrapper wrapper;
  bool forward = false, repeats = false;  // the comparisons that must notice it
};

/// The largest contribution to each input of each operation, where a fault is most visible.
std::vector<Seen> one_of_each(const std::vector<Seen>& seen) {
  std::map<std::string, Seen> largest;
  for (const Seen& one : seen) {
    const auto [place, is_new] = largest.emplace(place_of(one.contribution), one);
    if (!is_new && one.largest > place->second.largest) place->second = one;
  }
  std::vector<Seen> chosen;
  for (const auto& [name, one] : largest)
    if (one.largest > kZeroGradient) chosen.push_back(one);
  return chosen;
}

/// The largest contribution to a tensor with one of the first `tensors` ids.
const Contribution& largest_of(const std::vector<Seen>& seen, std::size_t tensors = SIZE_MAX) {
  const Seen* largest = nullptr;
  for (const Seen& one : seen) {
    const bool counts = static_cast<std::size_t>(one.contribution.tensor) < tensors;
    if (counts && (largest == nullptr || one.largest > largest->largest)) largest = &one;
  }
  return largest->contribution;
}

/// One fault of each kind, where the gradient is largest in the plain pass or in the recorded pass of forward
/// mode. The `inputs` leaves have the first ids.
std::vector<Fault> faults_of_passes(const std::vector<Seen>& in_plain, const std::vector<Seen>& in_recorded,
                                    std::size_t inputs) {
  const Contribution leaf = largest_of(in_plain, inputs), recorded = largest_of(in_recorded),
                     plain = largest_of(in_plain);
  const GradientWrapper off = at(recorded, [](const Tensor& x) { return x * 1.0001; });
  const auto none_for_leaf = [leaf](const Contribution& contribution, const Tensor& gradient) {
    return contribution.tensor == leaf.tensor ? gradient * 0 : gradient;
  };
  const auto off_when_recorded = [off](const Contribution& contribution, const Tensor& gradient) {
    return contribution.recorded ? off(contribution, gradient) : gradient;
  };
  const auto other_bits = [count = std::make_shared<int>(0)](const Tensor& x) {
    return x * (1 + 1e-15 * (*count)++);  // the same count on all tapes
  };
  return {{"lost gradient", place_of(leaf), none_for_leaf},
          {"off when recorded", place_of(recorded), off_when_recorded, true, false},
          {"other bits again", place_of(plain), at(plain, other_bits), false, true}};
}

std::vector<Fault> faults_for(const std::vector<Seen>& seen, bool masked) {
  std::vector<Fault> faults;
  for (const Seen& one : one_of_each(seen)) {
    const std::string place = place_of(one.contribution);
    const auto add = [&](const char* name, const std::function<Tensor(const Tensor&)>& change) {
      faults.push_back({name, place, at(one.contribution, change)});
    };
    add("dropped term", [](const Tensor& x) { return x * 0; });
    add("scale off by 1e-4", [](const Tensor& x) { return x * 1.0001; });
    const int axis = key_axis(one);
    if (masked && axis >= 0 && one.shape[axis] > 1)
      add("shifted mask", [axis](const Tensor& x) { return rolled(x, axis); });
  }
  std::map<std::int32_t, std::vector<std::string>> uses;  // the places of each value's contributions
  for (const Seen& one : seen)
    if (one.largest > kZeroGradient) uses[one.contribution.tensor].push_back(place_of(one.contribution));
  for (const auto& [value, places] : uses)
    if (places.size() > 1) faults.push_back({"missing accumulation", places.back(), only_the_last(value)});
  return faults;
}

}  // namespace

std::vector<PlantedFault> plant_faults(const AttentionCheck& check, const GradcheckRunOptions& options) {
  const auto check_with = [&](const Fault& fault) {
    GradcheckRunOptions chosen = options;
    chosen.second = false, chosen.forward = fault.forward, chosen.repeats = fault.repeats;
    return run_check(check, chosen, [&](Tape& tape) { tape.wrap_gradients(fault.wrapper); });
  };
  std::vector<PlantedFault> results;
  const auto run = [&](const Fault& fault) {
    const CheckResult result = check_with(fault);
    const std::vector<std::string> known = known_faults(result.report);
    const WorstInput worst = worst_of(result.report);
    const std::string where = known.empty() ? worst.where : known.front();
    results.push_back({check.layer, check.mode.name, fault.name, fault.place, worst.relative,
                       result.failure.empty() ? where : result.failure, !result.report.passed(),
                       !result.failure.empty()});
  };
  std::vector<Seen> plain, recorded;
  const auto listen = [](std::vector<Seen>& seen, bool in_recorded) {
    return [&seen, in_recorded](const Contribution& contribution, const Tensor& gradient) {
      if (contribution.recorded == in_recorded)
        seen.push_back({contribution, largest_of(gradient), gradient.shape()});
      return gradient;
    };
  };
  run({"none", "-", listen(recorded, true), true, true});
  if (results.front().threw) return results;
  check_with({"none", "-", listen(plain, false)});
  const bool masked = !check.mode.plain || check.layer == "causal";
  const std::size_t inputs = check.make(options.sizes, DType::f64).inputs.size();
  for (const Fault& fault : faults_for(plain, masked)) run(fault);
  for (const Fault& fault : faults_of_passes(plain, recorded, inputs)) run(fault);
  return results;
}

std::vector<AttentionCheck> checks_for_faults(const std::vector<AttentionCheck>& checks) {
  const auto is_usual = [](const AttentionCheck& check) {
    return check.mode.name == "self causal" || check.mode.name == "cross key padding";
  };
  std::map<std::string, bool> has_usual;
  for (const AttentionCheck& check : checks) has_usual[check.layer] |= is_usual(check);
  std::vector<AttentionCheck> chosen;
  for (const AttentionCheck& check : checks) {
    const bool is_first = chosen.empty() || chosen.back().layer != check.layer;
    if (has_usual[check.layer] ? is_usual(check) : is_first) chosen.push_back(check);
  }
  return chosen;
}

void print_fault_header(std::ostream& out) {
  out << format("{:-30} {:-18} {:-21} {:-40} {:9}  {:-24} {}\n", "layer", "mode", "fault", "planted in",
                "error", "seen in", "noticed");
}

void print_fault(std::ostream& out, const PlantedFault& fault) {
  out << format("{:-30} {:-18} {:-21} {:-40} {:9.1e}  {:-24} {}{}\n", fault.layer, fault.mode, fault.fault,
                fault.place, fault.error, fault.where, fault.noticed ? "yes" : "no",
                fault.as_it_should() ? "" : "  WRONG");
}

bool print_fault_summary(std::ostream& out, const std::vector<PlantedFault>& faults, double seconds) {
  Index planted = 0, missed = 0, alarms = 0;
  for (const PlantedFault& fault : faults) {
    const bool is_planted = fault.fault != "none";
    planted += is_planted;
    if (!fault.as_it_should()) ++(is_planted ? missed : alarms);
  }
  out << format(
      "{} faults planted in {} checks: {} noticed, {} missed, {} alarms without a fault, {:.1f} s\n", planted,
      static_cast<Index>(faults.size()) - planted, planted - missed, missed, alarms, seconds);
  return missed == 0 && alarms == 0;
}

nlohmann::ordered_json faults_json(const std::vector<PlantedFault>& faults) {
  nlohmann::ordered_json json = {{"passed", true}, {"faults", nlohmann::ordered_json::array()}};
  for (const PlantedFault& fault : faults) {
    if (!fault.as_it_should()) json["passed"] = false;
    json["faults"].push_back({{"layer", fault.layer},
                              {"mode", fault.mode},
                              {"fault", fault.fault},
                              {"planted_in", fault.place},
                              {"relative_error", fault.error},
                              {"seen_in", fault.where},
                              {"noticed", fault.noticed}});
  }
  return json;
}

}  // namespace tapeformer
