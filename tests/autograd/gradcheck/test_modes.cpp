#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/gradcheck/gradcheck.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/tests/reference/support.h>

#include <algorithm>

using namespace tapeformer;

namespace {

using NamedInputs = std::vector<std::pair<std::string, Tensor>>;
using Parts = std::vector<std::string>;

/// Every check but that of second derivatives, along `count` directions or element by element.
GradcheckOptions every_mode(Index count = 0) {
  GradcheckOptions options;
  options.forward = options.repeats = true;
  options.directions = count;
  return options;
}

/// The parts of the report in which something failed.
Parts failed_parts(const GradcheckReport& report) {
  Parts parts;
  report.for_each_part([&](const char* name, const std::vector<GradcheckInput>& part) {
    if (!std::all_of(part.begin(), part.end(), [](const auto& input) { return input.passed; }))
      parts.emplace_back(name);
  });
  return parts;
}

/// "x: it gets no gradient; " for each reported fault.
std::string faults(const GradcheckReport& report) {
  std::string all;
  report.for_each_part([&](const char*, const std::vector<GradcheckInput>& part) {
    for (const GradcheckInput& input : part)
      if (!input.fault.empty()) all += input.name + ": " + input.fault + "; ";
  });
  return all;
}

/// y = x^3 whose plain backward has the slope a x^2, and whose recorded pass computes b x^3.
Tensor cube(const Tensor& x, double a, double b) {
  return record_fused(
      "cube", {x}, {x}, pow(x.detach(), 3),
      [=](const Tensor& dy, const Gradients& into) { into[0] += a * (dy * x * x); },
      [=] { return b * pow(x, 3); });
}

/// A tensor in memory of its own, and two others in one.
struct Shared {
  Tensor weight = values({0.5, -1, 2, 0.25}, {2, 2}), x = values({0.3, -1.2, 2, 0.9}, {2, 2}),
         row = x.alias({4});
};

}  // namespace

TEST_CASE("forward mode finds the derivative along a direction, input by input and all together") {
  const Tensor x = values({0.3, -1.2, 2, 0.5}, {2, 2}), weight = values({1, 2, 3, -1}, {2, 2}),
               unused = Tensor::empty({0}, DType::f64);
  const auto function = [&] { return softmax(matmul(x, weight)) + sum(unused) * 2; };
  for (const Index directions : {0, 3}) {
    const GradcheckReport report =
        gradcheck(function, {{"x", x}, {"weight", weight}, {"unused", unused}}, every_mode(directions));
    INFO(report.text());
    CHECK(report.passed());
    REQUIRE(report.forward_inputs.size() == 3);
    CHECK(report.forward_inputs[0].name == (directions == 0 ? "x" : "direction 1"));
    CHECK(report.forward_inputs[0].checked == 4);  // elements of the output
    CHECK(report.forward_inputs[0].scale > 0.01);
    CHECK_BELOW(report.forward_inputs[0].relative_error, 1e-9);
    CHECK(report.adjoint_inputs.size() == 3);
    CHECK_BELOW(report.adjoint_inputs[0].relative_error, 1e-14);  // the same terms in another order
    CHECK(report.repeated_inputs.size() == 6);                    // in two further passes
    CHECK(report.second_inputs.empty());
  }
  CHECK(x.to_vector<double>() == std::vector<double>{0.3, -1.2, 2, 0.5});
}

TEST_CASE("each comparison notices a fault in one pass alone") {
  const Tensor x = values({0.3, -1.2, 2});
  const auto check = [&](double a, double b, Index directions) {
    const auto report = gradcheck([&] { return cube(x, a, b); }, {{"x", x}}, every_mode(directions));
    CHECK(faults(report).empty());  // there are gradients, though wrong ones
    return failed_parts(report);
  };
  for (const Index directions : {0, 2}) {
    CHECK(check(3, 1, directions).empty());
    CHECK(check(3.0003, 1, directions) == Parts{"first", "u'J v"});     // the kernel
    CHECK(check(3, 1.0001, directions) == Parts{"J v", "u'J v"});       // its composed fallback
    CHECK(check(3.0003, 1.0001, directions) == Parts{"first", "J v"});  // both alike
  }
}

TEST_CASE("forward mode alone notices a backward that is not recorded as a function of its gradient") {
  const Tensor x = values({0.3, -1.2});
  const auto function = [&] {
    return record("square", {x}, {x}, pow(x.detach(), 2),
                  [x](const Tensor& dy, const Gradients& into) { into[0] += 2.0 * (dy.detach() * x); });
  };
  GradcheckOptions options = every_mode();
  options.second_order = true;
  CHECK(failed_parts(gradcheck(function, {{"x", x}}, options)) == Parts{"J v", "u'J v"});
}

TEST_CASE("functions that are linear, that return their input, and that are constant are known") {
  const Tensor x = values({1, 2}), other = values({3});
  GradcheckOptions options = every_mode();
  options.second_order = true;
  CHECK(gradcheck([&] { return 3.0 * x; }, {{"x", x}}, options).passed());
  CHECK(gradcheck([&] { return reshape(x, {2, 1}); }, {{"x", x}}, options).passed());
  CHECK(gradcheck([&] { return x; }, {{"x", x}}, options).passed());
  const GradcheckReport report = gradcheck([&] { return x * x; }, {{"x", x}, {"other", other}}, every_mode());
  CHECK(report.passed());
  CHECK(report.forward_inputs[1].zero_in_theory());
}

TEST_CASE("a pass that gives other bits the next time is reported with the inputs that it affects") {
  const Tensor x = values({0.3, -1.2, 2}), y = values({1, 2, 3});
  int passes = 0;
  const auto function = [&] {
    return record("noisy", {x}, {x}, pow(x.detach(), 2),
                  [&passes, x](const Tensor& dy, const Gradients& into) {
                    // The last bit differs, as where threads add in the order of their arrival.
                    into[0] += (2 + (into.recorded() ? 0 : 4e-16 * passes++)) * (dy * x);
                  }) +
           y * y;
  };
  for (const Index directions : {0, 2}) {
    passes = 0;
    const GradcheckReport report = gradcheck(function, {{"x", x}, {"y", y}}, every_mode(directions));
    CHECK(failed_parts(report) == Parts{"again"});
    CHECK(faults(report) == "x: another pass gives different bits; x: another pass gives different bits; ");
    CHECK(report.repeated_inputs[0].absolute_error > 0);
    CHECK_BELOW(report.repeated_inputs[0].absolute_error, 1e-14);
  }
  passes = 0;
  CHECK(gradcheck(function, {{"x", x}, {"y", y}}).passed());  // it is optional
}

TEST_CASE("an input that gets no gradient although the function depends on it is reported by name") {
  const Tensor x = values({1, 2}), y = values({3, 4}), without = values({5, 6});
  const auto function = [&] { return exp(x) * exp(y.detach() * 0.5) + softmax(without * 0); };
  for (const Index directions : {0, 2}) {
    const GradcheckReport report =
        gradcheck(function, {{"x", x}, {"y", y}, {"without", without}}, every_mode(directions));
    CHECK(failed_parts(report) == Parts{"first", "J v"});
    CHECK(faults(report) == "y: it gets no gradient; ");
    CHECK(report.text().find("WRONG: it gets no gradient") != std::string::npos);
  }
}

TEST_CASE("an input that must get no gradient may matter, and is reported if it gets one") {
  const Tensor x = values({1, 2}), target = values({3, 4});
  for (const Index directions : {0, 2}) {
    GradcheckOptions options = every_mode(directions);
    options.second_order = true;
    const auto distance = [&](const Tensor& to) { return pow(x - to, 2) * x; };
    const NamedInputs inputs = {{"x", x}, {"target", target}};
    const auto stopped = [&] { return distance(target.detach()); };
    CHECK_FALSE(gradcheck(stopped, inputs, options).passed());
    options.constants = {"target"};
    const GradcheckReport right = gradcheck(stopped, inputs, options);
    INFO(right.text());
    CHECK(right.passed());
    CHECK(right.inputs.back().name == "target");
    CHECK(right.inputs.back().zero_in_theory());
    CHECK(right.forward_inputs.size() == static_cast<std::size_t>(directions == 0 ? 1 : directions));
    const GradcheckReport wrong = gradcheck([&] { return distance(target); }, inputs, options);
    CHECK(failed_parts(wrong) == Parts{"first", "second"});
    CHECK(faults(wrong) == "target: it should get no gradient; target: it should get no gradient; ");
    options.constants = {"x", "targets"};
    CHECK(message_of<Error>([&] { gradcheck(stopped, inputs, options); }) ==
          "[gradcheck] a constant must be one of the inputs; got targets; try the name of an input");
  }
}

TEST_CASE("inputs that share memory are checked by the sum of their gradients") {
  for (const Index directions : {0, 3}) {
    const Shared s;
    GradcheckOptions options = every_mode(directions);
    options.second_order = true;
    const auto function = [&] {  // the tape does not know that x and row share memory
      return matmul(s.x, s.weight) * s.x + reshape(exp(s.row), {2, 2});
    };
    const GradcheckReport report =
        gradcheck(function, {{"weight", s.weight}, {"x", s.x}, {"row", s.row}, {"x again", s.x}}, options);
    INFO(report.text());
    CHECK(report.passed());
    CHECK(report.forward_inputs.size() == static_cast<std::size_t>(directions == 0 ? 2 : directions));
    CHECK(report.repeated_inputs.size() == 2 * 4);
    CHECK(s.x.to_vector<double>() == std::vector<double>{0.3, -1.2, 2, 0.9});
    const auto wrong = [&] { return matmul(s.x, s.weight) * s.x + reshape(cube(s.row, 3.0003, 1), {2, 2}); };
    const NamedInputs inputs = {{"x", s.x}, {"row", s.row}, {"weight", s.weight}};
    CHECK(failed_parts(gradcheck(wrong, inputs, every_mode(directions))) == Parts{"first", "u'J v"});
  }
}

TEST_CASE("a gradient that misses one of two uses of a tensor is noticed, whoever shares the memory") {
  const Shared s;
  const auto function = [&] {
    return record("half", {s.x, s.x}, {s.x}, pow(s.x.detach(), 2),
                  [s](const Tensor& dy, const Gradients& into) { into[0] += dy * s.x; });
  };
  CHECK(failed_parts(gradcheck(function, {{"x", s.x}}, every_mode())).size() >= 2);
  CHECK(failed_parts(gradcheck(function, {{"x", s.x}, {"row", s.row}}, every_mode(2))).size() >= 2);
}
