#include <tapeformer/tests/reference/check_below.h>
#include <tapeformer/tests/reference/check_gradients.h>

#include <doctest/doctest.h>

#include <algorithm>

namespace tapeformer {

void check_gradients(const std::string& name, const GradcheckReport& report) {
  INFO(name, "\n", report.text());
  CHECK(report.passed());
  std::string key = name;
  std::replace(key.begin(), key.end(), ' ', '_');
  double margin = 0;
  const GradcheckOptions usual;
  report.for_each_part([&](const char*, const std::vector<GradcheckInput>& inputs) {
    for (const GradcheckInput& input : inputs)
      margin = std::max(
          margin, std::min(input.relative_error / usual.tolerance, input.absolute_error / usual.absolute));
  });
  note_margin(margin, 1, "gradcheck:" + key);
}

}  // namespace tapeformer
