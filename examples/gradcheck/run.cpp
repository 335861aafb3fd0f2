#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/gradcheck/run.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/examples/shared/progress.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <ostream>

namespace tapeformer {
namespace {

struct BothOrders {
  std::vector<Tensor> first, second;
};

/// The gradients of a random projection of the output, and of a random projection of those gradients.
BothOrders gradients_of(const CheckCase& subject, const GradcheckRunOptions& options) {
  Generator random(options.sizes.seed + 1);
  const auto projected = [&](const Tensor& x) {
    return sum(x * Tensor::randn(x.shape(), random, x.dtype(), x.device()));
  };
  std::vector<Tensor> of;
  Tape tape;
  for (const auto& [name, x] : subject.inputs) {
    tape.watch(x);
    of.push_back(x);
  }
  BothOrders result;
  result.first = tape.gradients(projected(subject.function()), of, {}, options.second);
  if (!options.second) return result;
  Tensor total = projected(result.first[0]);
  for (std::size_t i = 1; i < of.size(); ++i) total = total + projected(result.first[i]);
  result.second = tape.gradients(total, of);
  return result;
}

std::vector<GradcheckInput> compared(const NamedTensors& inputs, const std::vector<Tensor>& single,
                                     const std::vector<Tensor>& reference, const GradcheckRunOptions& options,
                                     double magnifies) {
  std::vector<GradcheckInput> report;
  double largest = 0;
  for (std::size_t i = 0; i < single.size(); ++i) {
    GradcheckInput& input = report.emplace_back();
    input.name = inputs[i].first;
    input.compare(single[i], reference[i]);
    input.judge(options.differences());
    largest = std::max(largest, input.scale);
  }
  for (GradcheckInput& input : report) {
    // In f32, a gradient that is zero in theory (below 1e-9) is the rounding error of terms that cancel.
    const double scale = input.scale < 1e-9 ? std::max(largest, 1.0) : input.scale;
    input.passed = input.absolute_error <= magnifies * options.tolerance_used() * scale;
  }
  return report;
}

/// Compares f32 gradients with f64 gradients at the same values.
GradcheckReport compare_precisions(const AttentionCheck& check, const CheckCase& single,
                                   const GradcheckRunOptions& options) {
  const CheckCase reference = check.make(options.sizes, DType::f64);
  for (std::size_t i = 0; i < single.inputs.size(); ++i)
    reference.inputs[i].second.copy_from(single.inputs[i].second.to(DType::f64));
  const BothOrders ours = gradients_of(single, options), theirs = gradients_of(reference, options);
  GradcheckReport report;
  report.inputs = compared(single.inputs, ours.first, theirs.first, options, single.magnifies);
  report.second_inputs = compared(single.inputs, ours.second, theirs.second, options, single.magnifies);
  if (!options.repeats) return report;
  const BothOrders again = gradients_of(single, options);
  for (const auto& [now, before] : {std::pair(again.first, ours.first), {again.second, ours.second}}) {
    for (std::size_t i = 0; i < now.size(); ++i) {
      GradcheckInput& input = report.repeated_inputs.emplace_back();
      input.name = single.inputs[i].first;
      input.compare_bits(now[i], before[i]);
    }
  }
  return report;
}

const char* const kRow = "{:-30} {:-22} {:10} {:9} {:9} {:9} {:9}  {:-34} {:8}  {}\n";

/// NaN is the largest error.
bool is_worse(double error, double than) { return error > than || std::isnan(error); }

}  // namespace

void GradcheckRunOptions::check() const {
  check_options(fields_of(*this));
  require(sizes.heads % sizes.groups == 0,
          format("--heads must be a multiple of --groups; got {} and {}", sizes.heads, sizes.groups));
  require(sizes.head_width % 2 == 0,
          format("--head-width must be even, for rotary positions; got {}", sizes.head_width));
}

GradcheckOptions GradcheckRunOptions::differences() const {
  GradcheckOptions result;
  result.step = step, result.four_point = stencil == 4;
  result.tolerance = tolerance_used();
  result.absolute = result.tolerance / 100;  // a gradient of zero in theory has no relative error
  result.second_order = second, result.forward = forward, result.repeats = repeats;
  result.most_elements = elements, result.seed = sizes.seed + 1;
  return result;
}

WorstInput worst_of(const std::vector<GradcheckInput>& inputs, const std::string& part, WorstInput worst) {
  for (const GradcheckInput& input : inputs) {
    if (is_worse(input.absolute_error, worst.absolute)) worst.absolute = input.absolute_error;
    if (input.zero_in_theory() || !(is_worse(input.relative_error, worst.relative) || worst.where.empty()))
      continue;
    worst.relative = input.relative_error;
    worst.where = part + input.name;
    if (input.worst_element >= 0) worst.where += "[" + std::to_string(input.worst_element) + "]";
  }
  return worst;
}

WorstInput worst_of(const GradcheckReport& report) {
  WorstInput worst;
  report.for_each_part([&](const std::string& part, const std::vector<GradcheckInput>& inputs) {
    worst = worst_of(inputs, part == "first" ? "" : part + " ", worst);
  });
  return worst;
}

std::vector<std::string> known_faults(const GradcheckReport& report) {
  std::vector<std::string> faults;
  report.for_each_part([&](const std::string& part, const std::vector<GradcheckInput>& inputs) {
    for (const GradcheckInput& input : inputs)
      if (!input.fault.empty()) faults.push_back(part + " " + input.name + ": " + input.fault);
  });
  return faults;
}

CheckResult run_check(const AttentionCheck& check, const GradcheckRunOptions& options,
                      const std::function<void(Tape&)>& on_tape) {
  const double begun = now_seconds();
  CheckResult result;
  result.layer = check.layer, result.mode = check.mode.name;
  try {
    const bool single = options.type == "f32";
    const CheckCase subject = check.make(options.sizes, single ? DType::f32 : DType::f64);
    result.parameters = subject.parameters;
    GradcheckOptions differences = options.differences();
    differences.on_tape = on_tape;
    result.report = single ? compare_precisions(check, subject, options)
                           : gradcheck(subject.function, subject.inputs, differences);
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
  result.seconds = now_seconds() - begun;
  return result;
}

void print_header(std::ostream& out) {
  out << format(kRow, "", "", "", "relative", "relative", "relative", "absolute", "", "", "")
      << format(kRow, "layer", "mode", "parameters", "1st", "2nd", "forward", "worst", "worst at", "time",
                "verdict");
}

void print_row(std::ostream& out, const CheckResult& result) {
  const GradcheckReport& report = result.report;
  const auto scientific = [](const std::vector<GradcheckInput>& part, const WorstInput& before = {}) {
    return part.empty() ? "-" : format("{:.1e}", worst_of(part, "", before).relative);
  };
  const WorstInput worst = worst_of(report);
  out << format(kRow, result.layer, result.mode, std::to_string(result.parameters), scientific(report.inputs),
                scientific(report.second_inputs),
                scientific(report.adjoint_inputs, worst_of(report.forward_inputs)),
                format("{:.1e}", worst.absolute), worst.where, format("{:.0f} ms", result.seconds * 1e3),
                result.passed() ? "PASS" : "FAIL");
  for (const std::string& fault : known_faults(report)) out << "    " << fault << "\n";
  if (!result.failure.empty()) out << "    " << result.failure << "\n";
}

bool print_summary(std::ostream& out, const std::vector<CheckResult>& results,
                   const GradcheckRunOptions& options, double seconds) {
  double relative = 0, absolute = 0;
  std::size_t failed = 0;
  for (const CheckResult& result : results) {
    const WorstInput worst = worst_of(result.report);
    if (is_worse(worst.relative, relative)) relative = worst.relative;
    if (is_worse(worst.absolute, absolute)) absolute = worst.absolute;
    failed += result.passed() ? 0 : 1;
  }
  const bool single = options.type == "f32";
  out << format(
      "{}, {} failed: worst error {:.1e} relative, {:.1e} absolute, allowed {:.0e}, {}{}{}{}, {:.1f} s\n",
      number_of(results.size(), "check"), failed, relative, absolute, options.tolerance_used(),
      single ? "f32 against f64" : "against central differences in f64",
      options.second ? ", both orders" : "", options.forward && !single ? ", forward mode" : "",
      options.repeats ? ", the same bits again" : "", seconds);
  return failed == 0;
}

nlohmann::ordered_json results_json(const std::vector<CheckResult>& results,
                                    const GradcheckRunOptions& options, double seconds) {
  const auto inputs_json = [](const std::vector<GradcheckInput>& inputs) {
    Json list = Json::array();
    for (const GradcheckInput& input : inputs) {
      list.push_back({{"input", input.name},
                      {"relative_error", input.zero_in_theory() ? Json() : Json(input.relative_error)},
                      {"absolute_error", input.absolute_error},
                      {"largest_gradient", input.scale},
                      {"worst_element", input.worst_element},
                      {"elements", input.checked},
                      {"passed", input.passed}});
      if (!input.fault.empty()) list.back()["fault"] = input.fault;
    }
    return list;
  };
  Json sizes;
  write_fields(sizes, fields_of(options.sizes));
  Json json = {{"dtype", options.type},
               {"device", options.sizes.device.text()},
               {"stencil", options.stencil},
               {"step", options.step},
               {"tolerance", options.tolerance_used()},
               {"seed", options.sizes.seed},
               {"sizes", sizes},
               {"dropout", options.sizes.dropout},
               {"seconds", seconds},
               {"passed", true},
               {"checks", Json::array()}};
  for (const CheckResult& result : results) {
    if (!result.passed()) json["passed"] = false;
    Json row = {{"layer", result.layer},
                {"mode", result.mode},
                {"parameters", result.parameters},
                {"passed", result.passed()},
                {"seconds", result.seconds}};
    result.report.for_each_part([&](const char* part, const std::vector<GradcheckInput>& inputs) {
      if (!inputs.empty()) row[part] = inputs_json(inputs);
    });
    if (!result.failure.empty()) row["failure"] = result.failure;
    json["checks"].push_back(row);
  }
  return json;
}

}  // namespace tapeformer
