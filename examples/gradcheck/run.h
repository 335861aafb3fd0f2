#pragma once

#include <tapeformer/autograd/gradcheck.h>
#include <tapeformer/examples/gradcheck/attention_checks.h>

#include <nlohmann/json_fwd.hpp>

#include <iosfwd>
#include <string>
#include <vector>

namespace tapeformer {

struct GradcheckRunOptions {
  CheckSizes sizes;
  std::string type = "f64";  ///< f64: against differences; f32: against the gradients in f64
  Index stencil = 4;
  double step = 1e-3;
  /// On the relative error; 0 for 1e-7 in f64, 2e-5 in f32 (where the worst of seven seeds was 9e-6).
  double tolerance = 0;
  Index elements = 0;  ///< at most so many of each input, evenly spread; 0 for all
  bool second = true;  ///< second derivatives too
  Index threads = 1;   ///< 0 for all cores; on tensors this small two would mostly wait for each other

  /// Throws: Error naming the option and what it allows.
  void check() const;
  double tolerance_used() const { return tolerance > 0 ? tolerance : type == "f64" ? 1e-7 : 2e-5; }
  /// A gradient that is zero in theory, such as a key bias's, has no relative error: in f64 it must stay
  /// below this, in f32 below the tolerance times the largest gradient of any input.
  double absolute_used() const { return tolerance_used() / 100; }
  GradcheckOptions differences() const;
};

struct CheckResult {
  std::string layer, mode;
  Index parameters = 0;
  GradcheckReport report;
  double seconds = 0;
  std::string failure;  ///< what was thrown, if anything

  bool passed() const { return failure.empty() && report.passed(); }
};

/// The input with the largest error among those of one order of derivatives.
struct WorstInput {
  double relative = 0, absolute = 0;
  std::string where;  ///< "query.weight[12]"
};
WorstInput worst_of(const std::vector<GradcheckInput>& inputs);

/// `on_tape` may plant faults; see GradcheckOptions.
CheckResult run_check(const AttentionCheck& check, const GradcheckRunOptions& options,
                      const std::function<void(Tape&)>& on_tape = {});

void print_header(std::ostream& out);
void print_row(std::ostream& out, const CheckResult& result, bool second);
/// The last line; true if all passed.
bool print_summary(std::ostream& out, const std::vector<CheckResult>& results,
                   const GradcheckRunOptions& options, double seconds);
nlohmann::ordered_json results_json(const std::vector<CheckResult>& results,
                                    const GradcheckRunOptions& options, double seconds);

}  // namespace tapeformer
