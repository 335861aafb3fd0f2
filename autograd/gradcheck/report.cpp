#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/gradcheck/gradcheck.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tapeformer {
namespace {

double larger(double a, double b) { return b > a || std::isnan(b) ? b : a; }

std::string line_of(const char* part, const GradcheckInput& input) {
  const std::string relative =
      input.zero_in_theory() ? "zero in theory   " : format("relative {:.2e}", input.relative_error);
  const std::string place = input.worst_element < 0 ? "" : format("at {}, ", input.worst_element);
  const std::string verdict = input.passed                ? "ok"
                              : input.fault == kTooCoarse ? input.fault
                              : input.fault.empty()       ? "WRONG"
                                                          : "WRONG: " + input.fault;
  return format("{:-6} {:-40} {}  absolute {:.2e}  {}{} checked  {}\n", part, input.name, relative,
                input.absolute_error, place, input.checked, verdict);
}

}  // namespace

void GradcheckInput::compare(Index element, double analytic, double numeric) {
  const double error = std::fabs(analytic - numeric);
  ++checked;
  scale = std::max(scale, std::fabs(numeric));
  if (!(error > absolute_error) && !std::isnan(error)) return;
  absolute_error = error;
  worst_element = element;
}

void GradcheckInput::compare(const Tensor& analytic, const Tensor& numeric) {
  const Tensor ours = analytic.to(Device::cpu()), theirs = numeric.to(Device::cpu());
  for (Index i = 0; i < ours.elements(); ++i) compare(i, ours.at(i), theirs.at(i));
}

void GradcheckInput::compare_bits(const Tensor& again, const Tensor& before) {
  compare(again, before);
  relative_error = absolute_error == 0 ? 0 : absolute_error / scale;
  const Tensor a = again.to(Device::cpu()), b = before.to(Device::cpu());
  passed = std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0;
  if (!passed) fault = "another pass gives different bits";
}

void GradcheckInput::judge(const GradcheckOptions& options) {
  relative_error = absolute_error == 0 ? 0 : absolute_error / scale;
  passed = relative_error <= options.tolerance || absolute_error <= options.absolute;
}

bool GradcheckReport::passed() const {
  bool all = true;
  for_each_part([&](const char*, const std::vector<GradcheckInput>& part) {
    all = all && std::all_of(part.begin(), part.end(), [](const auto& input) { return input.passed; });
  });
  return all;
}

double GradcheckReport::worst_relative_error() const {
  double worst = 0;
  for_each_part([&](const char*, const std::vector<GradcheckInput>& part) {
    for (const GradcheckInput& input : part) {
      // If the gradient is zero in theory, the ratio is one of rounding errors.
      if (input.absolute_error < 1e-12 && input.scale < 1e-9) continue;
      worst = larger(worst, input.relative_error);
    }
  });
  return worst;
}

double GradcheckReport::worst_absolute_error() const {
  double worst = 0;
  for_each_part([&](const char*, const std::vector<GradcheckInput>& part) {
    for (const GradcheckInput& input : part) worst = larger(worst, input.absolute_error);
  });
  return worst;
}

std::string GradcheckReport::text() const {
  std::string text;
  for_each_part([&](const char* name, const std::vector<GradcheckInput>& part) {
    for (const GradcheckInput& input : part) text += line_of(name, input);
  });
  return text;
}

}  // namespace tapeformer
