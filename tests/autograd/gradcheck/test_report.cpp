#include <doctest/doctest.h>
#include <tapeformer/autograd/gradcheck/gradcheck.h>
#include <tapeformer/tests/reference/support.h>

#include <cmath>
#include <limits>

using namespace tapeformer;

namespace {

GradcheckInput compared(const std::string& name, double analytic, double numeric) {
  GradcheckInput input;
  input.name = name;
  input.compare(3, analytic, numeric);
  input.judge({});
  return input;
}

}  // namespace

TEST_CASE("the largest difference counts, against the largest numeric derivative, and NaN is the largest") {
  GradcheckInput input;
  input.compare(values({1, 2.5, -4}), values({1, 2, -4.25}));
  input.judge({});
  CHECK(input.checked == 3);
  CHECK(input.worst_element == 1);
  CHECK(input.absolute_error == 0.5);
  CHECK(input.scale == 4.25);
  CHECK(input.relative_error == 0.5 / 4.25);
  CHECK_FALSE(input.passed);
  input.compare(7, std::numeric_limits<double>::quiet_NaN(), 1);
  input.compare(8, 100, 1);
  input.judge({});
  CHECK(input.worst_element == 7);
  CHECK(std::isnan(input.relative_error));
  CHECK_FALSE(input.passed);
}

TEST_CASE("a comparison passes by either bound") {
  CHECK(compared("x", 1e3, 1e3 + 1e-5).passed);        // 1e-8 relative
  CHECK_FALSE(compared("x", 1e3, 1e3 + 1e-3).passed);  // 1e-6
  CHECK(compared("x", 5e-10, 0).passed);               // below `absolute`
  CHECK(std::isinf(compared("x", 1, 0).relative_error));
  CHECK(compared("x", 0, 0).zero_in_theory());
}

TEST_CASE("a line says where it is worst, of inputs that have elements, and how many were compared") {
  GradcheckInput sampled = compared("sampled", 1, 1), direction = sampled;
  sampled.worst_element = 128, sampled.checked = 5;
  direction.worst_element = -1, direction.checked = 300;
  const std::string text = GradcheckReport{{sampled, direction}, {}, {}, {}, {}}.text();
  CHECK(text.find("  at 128, 5 checked  ok\n") != std::string::npos);
  CHECK(text.find("e+00  300 checked  ok\n") != std::string::npos);
}

TEST_CASE("gradients that the differences cannot resolve are not called wrong") {
  GradcheckInput unsettled = compared("unsettled", 0, 2);
  unsettled.fault = kTooCoarse;
  const GradcheckReport report{{unsettled}, {}, {}, {}, {}};
  CHECK_FALSE(report.passed());
  CHECK(report.text().find(" at 3, 1 checked  differences too coarse, try another step\n") !=
        std::string::npos);
  CHECK(report.text().find("WRONG") == std::string::npos);
}

TEST_CASE("every part counts, and has its lines, with the cause of a fault") {
  const GradcheckInput right = compared("right", 1, 1);
  GradcheckInput wrong = compared("wrong", 0, 2);
  wrong.fault = "it gets no gradient";
  const GradcheckReport all{{right}, {right}, {right}, {right}, {right}};
  CHECK(all.passed());
  CHECK(all.worst_relative_error() == 0);
  CHECK(all.text().find("WRONG") == std::string::npos);
  for (std::size_t part = 0; part < 5; ++part) {
    GradcheckReport report = all;
    std::vector<GradcheckInput>* const parts[] = {&report.inputs, &report.second_inputs,
                                                  &report.forward_inputs, &report.adjoint_inputs,
                                                  &report.repeated_inputs};
    parts[part]->push_back(wrong);
    CHECK_FALSE(report.passed());
    CHECK(report.worst_relative_error() == 1);
    CHECK(report.worst_absolute_error() == 2);
    const char* const names[] = {"first  wrong ", "second wrong ", "J v    wrong ", "u'J v  wrong ",
                                 "again  wrong "};
    CHECK(report.text().find(names[part]) != std::string::npos);
    CHECK(report.text().find(" at 3, 1 checked  WRONG: it gets no gradient\n") != std::string::npos);
  }
}
