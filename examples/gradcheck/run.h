#pragma once

#include <tapeformer/autograd/gradcheck/gradcheck.h>
#include <tapeformer/examples/gradcheck/attention_checks.h>

#include <nlohmann/json_fwd.hpp>

#include <iosfwd>
#include <string>
#include <vector>

namespace tapeformer {

struct GradcheckRunOptions {
  CheckSizes sizes;
  std::string type = "f64";  ///< f64 compares with differences, f32 with the f64 gradients
  Index stencil = 4;
  double step = 1e-3;
  /// Largest relative error; 0 for 1e-7 in f64 and 2e-5 in f32 (the worst of seven seeds was 9e-6).
  double tolerance = 0;
  Index elements = 0;   ///< checked elements of each input, evenly spread; 0 for all
  bool second = true;   ///< check second derivatives too
  bool forward = true;  ///< check forward mode too, in f64
  bool repeats = true;  ///< check that another backward pass gives the same bits

  void describe(const FieldVisitor& f) {
    sizes.describe(f.in_group("Sizes"));
    const auto field = f.in_group("Check");
    field("dropout", sizes.dropout, "dropout of the weights, in the modes that have it", kBelowOne);
    field("seed", sizes.seed, "seed of all values and masks");
    field("dtype", type, "f64: gradients against differences; f32: gradients in f32 against those in f64");
    field("stencil", stencil, "points of the central differences: 2 or 4");
    field("step", step, "step of the differences, times max(1, |x|)", kPositive);
    field("elements", elements,
          "elements to check in each input, evenly spread: faster at large sizes; 0 for all", kNotNegative);
    field("tolerance", tolerance,
          "largest relative error, max |error| / max |gradient| over a tensor; 0 for 1e-7 in f64 and 2e-5 in "
          "f32. Where theory says zero, the error itself must be below a hundredth of it; in f32 below it "
          "times the largest gradient",
          kNotNegative);
  }

  /// Throws: Error that names the option and its range
  void check() const;
  double tolerance_used() const { return tolerance > 0 ? tolerance : type == "f64" ? 1e-7 : 2e-5; }
  GradcheckOptions differences() const;
};

struct CheckResult {
  std::string layer, mode;
  Index parameters = 0;
  GradcheckReport report;
  double seconds = 0;
  std::string failure;  ///< the exception's message, if one was thrown

  bool passed() const { return failure.empty() && report.passed(); }
};

/// The input with the largest error in a set of comparisons.
struct WorstInput {
  double relative = 0, absolute = 0;
  std::string where;  ///< "query.weight[12]", for second derivatives "second query.weight[12]"
};
/// The worst of `worst` and these inputs; `part` is a prefix of their names.
WorstInput worst_of(const std::vector<GradcheckInput>& inputs, const std::string& part = {},
                    WorstInput worst = {});
/// The worst of all comparisons.
WorstInput worst_of(const GradcheckReport& report);
/// A line for each fault whose kind is known: "again query.weight: another pass gives different bits".
std::vector<std::string> known_faults(const GradcheckReport& report);

/// `on_tape` may plant faults; see GradcheckOptions.
CheckResult run_check(const AttentionCheck& check, const GradcheckRunOptions& options,
                      const std::function<void(Tape&)>& on_tape = {});

void print_header(std::ostream& out);
void print_row(std::ostream& out, const CheckResult& result);
/// Prints the last line. True if all checks passed.
bool print_summary(std::ostream& out, const std::vector<CheckResult>& results,
                   const GradcheckRunOptions& options, double seconds);
nlohmann::ordered_json results_json(const std::vector<CheckResult>& results,
                                    const GradcheckRunOptions& options, double seconds);

}  // namespace tapeformer
