#include <doctest/doctest.h>
#include <tapeformer/autograd/gradcheck/gradcheck.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/tests/reference/support.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

using namespace tapeformer;

namespace {

/// y = x^2 with a gradient of `slope` x.
Tensor square(const Tensor& x, double slope) {
  return record("square", {x}, {x}, pow(x.detach(), 2),
                [x, slope](const Tensor& dy, const Gradients& into) { into[0] += slope * (dy * x); });
}

/// Attention by cosines, whose scores are multiplied by e^temperature.
Tensor cosine_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                        const Tensor& temperature) {
  const auto unit = [](const Tensor& x) { return x / sqrt(sum(x * x, {-1}, true)); };
  return matmul(softmax(matmul(unit(query), transpose(unit(key))) * exp(temperature)), value);
}

/// y = tanh(30 x), with a gradient that is off by `factor`.
Tensor steep(const Tensor& x, double factor) {
  const Tensor y = tanh(30 * x.detach());
  return record("steep", {x}, {y}, y, [=](const Tensor& dy, const Gradients& into) {
    into[0] += 30 * factor * (dy * (1 - y * y));
  });
}

}  // namespace

TEST_CASE("a right gradient passes, with the error of central differences") {
  const Tensor x = values({0.3, -1.2, 2});
  const GradcheckReport report = gradcheck([&] { return square(x, 2); }, {{"x", x}});
  CHECK(report.passed());
  CHECK_BELOW(report.worst_relative_error(), 1e-11);
  REQUIRE(report.inputs.size() == 1);
  CHECK(report.inputs[0].name == "x");
  CHECK(report.inputs[0].checked == 3);
  CHECK(report.second_inputs.empty());
}

TEST_CASE("a wrong gradient fails, and the report says where and by how much") {
  const Tensor x = values({0.3, -1.2, 2}), y = values({1, 2, 3});
  const GradcheckReport report = gradcheck([&] { return square(x, 2.02) + y * y; }, {{"x", x}, {"y", y}});
  CHECK(!report.passed());
  CHECK(!report.inputs[0].passed);
  CHECK(report.inputs[1].passed);
  CHECK_BELOW(deviation(report.inputs[0].relative_error, 0.01), 1e-6);
  CHECK(report.text().find("relative 1.00e-02") != std::string::npos);
}

TEST_CASE("random directions take four calls each, and notice a wrong gradient of any input") {
  const Tensor x = values({0.3, -1.2, 2}), y = values({1, 2, 3, 4});
  GradcheckOptions options;
  options.directions = 3;
  options.second_order = true;
  Index calls = 0;
  const auto check = [&](double slope) {
    calls = 0;
    return gradcheck(
        [&] {
          return ++calls, concat({square(x, slope) * x, y * y * y}, 0);
        },
        {{"x", x}, {"y", y}}, options);
  };
  const GradcheckReport right = check(2);
  CHECK(right.passed());
  REQUIRE(right.inputs.size() == 3);
  CHECK(right.inputs[2].name == "direction 3");
  CHECK(right.inputs[2].checked == 7);
  CHECK(right.second_inputs.size() == 3);
  CHECK(calls == 3 + 2 * 3 * 4);  // the projection, two passes, and the differences of both orders
  CHECK(x.to_vector<double>() == std::vector<double>{0.3, -1.2, 2});
  CHECK(y.to_vector<double>() == std::vector<double>{1, 2, 3, 4});
  const GradcheckReport wrong = check(2.0001);
  CHECK_FALSE(wrong.passed());
  for (const GradcheckInput& direction : wrong.inputs) CHECK(direction.relative_error > 1e-7);
}

TEST_CASE("a right gradient passes where the function bends too much for the step") {
  Generator random(test_seed(3));
  const Tensor query = random_normal({4, 2}, random) * 0.3, key = random_normal({5, 2}, random) * 0.3,
               value = random_normal({5, 3}, random), temperature = values({2.3});
  const std::vector<std::pair<std::string, Tensor>> inputs = {
      {"query", query}, {"key", key}, {"value", value}, {"temperature", temperature}};
  GradcheckOptions options;
  options.second_order = options.forward = true;
  for (const Index directions : {0, 2}) {
    options.directions = directions;
    const GradcheckReport report =
        gradcheck([&] { return cosine_attention(query, key, value, temperature); }, inputs, options);
    INFO(report.text());
    CHECK(report.passed());
  }
  const Tensor x = values({-0.05, 0.02, 0.01});
  for (const double sharpness : {10., 100., 1000.})
    CHECK(gradcheck([&] { return softmax(sharpness * x); }, {{"x", x}}, options).passed());
  const Tensor positive = values({5e-4});  // the step leads to a negative number
  CHECK(gradcheck([&] { return log(positive); }, {{"x", positive}}).passed());
}

TEST_CASE("a fault that is smaller than the error of the differences is noticed") {
  const Tensor x = values({0.03, -0.01, 0.02});
  CHECK(gradcheck([&] { return steep(x, 1); }, {{"x", x}}).passed());
  for (const double off : {-1e-6, -3e-7, 3e-7, 1e-6}) {
    for (const Index directions : {0, 1}) {
      GradcheckOptions options;
      options.directions = directions;
      const GradcheckReport report = gradcheck([&] { return steep(x, 1 + off); }, {{"x", x}}, options);
      INFO(report.text());
      CHECK(report.text().find("WRONG") != std::string::npos);
    }
  }
}

TEST_CASE("a gradient that is zero in theory, such as a softmax's shift, is reported as such") {
  const Tensor x = values({0.3, -1.2, 2}), shift = values({0.7});
  const GradcheckReport report = gradcheck([&] { return softmax(x + shift); }, {{"x", x}, {"shift", shift}});
  CHECK(report.passed());
  CHECK_FALSE(report.inputs[0].zero_in_theory());
  CHECK(report.inputs[1].zero_in_theory());
  const std::string text = report.text();
  CHECK(text.find("first  shift                                    zero in theory     absolute ") !=
        std::string::npos);
  CHECK(text.find("relative", text.find("shift")) == std::string::npos);
  const auto wrong = [&] {  // the same derivative, with a backward of another
    return record("wrong", {shift}, {}, softmax(x.detach() + shift.detach()),
                  [](const Tensor& dy, const Gradients& into) { into[0] += sum(dy); });
  };
  const GradcheckReport bad = gradcheck(wrong, {{"shift", shift}});
  CHECK_FALSE(bad.inputs[0].zero_in_theory());
  CHECK(bad.text().find("zero in theory") == std::string::npos);
}

TEST_CASE("a gradient where there should be none fails") {
  const Tensor x = values({1, 2}), constant = values({3, 4});
  const auto function = [&] {
    return record("constant", {x}, {}, constant.clone(),
                  [](const Tensor& dy, const Gradients& into) { into[0] += dy; });
  };
  const GradcheckReport report = gradcheck(function, {{"x", x}});
  CHECK(!report.passed());
  CHECK(std::isinf(report.worst_relative_error()));
}

TEST_CASE("a gradient or a function that is not a number fails") {
  const Tensor x = values({1, -2, 3});
  const auto wrong = [&] {
    return record("wrong", {x}, {}, exp(x.detach()),
                  [](const Tensor& dy, const Gradients& into) { into[0] += log(-1.0 * (dy * dy)); });
  };
  const GradcheckReport report = gradcheck(wrong, {{"x", x}});
  CHECK(!report.passed());
  CHECK(std::isnan(report.worst_relative_error()));
  CHECK(std::isnan(report.worst_absolute_error()));
  CHECK(!gradcheck([&] { return log(x); }, {{"x", x}}).passed());
}

TEST_CASE("a wrong gradient of the gradient fails only the second order") {
  // The first derivative is right, but recorded as if it were a constant.
  const Tensor x = values({0.3, -1.2});
  const auto function = [&] {
    return record("square", {x}, {x}, pow(x.detach(), 2),
                  [x](const Tensor& dy, const Gradients& into) { into[0] += 2.0 * (dy * x.detach()); });
  };
  GradcheckOptions options;
  CHECK(gradcheck(function, {{"x", x}}, options).passed());
  options.second_order = true;
  const GradcheckReport report = gradcheck(function, {{"x", x}}, options);
  CHECK(report.inputs[0].passed);
  CHECK(!report.second_inputs[0].passed);
  CHECK(report.second_inputs[0].fault == "it gets no gradient");
}

TEST_CASE("a plain sum would hide what the projection shows") {
  // The rows of x / sum(x) add up to one, so the gradient of their sum is zero whatever the backward says.
  const Tensor x = values({1, 2, 3});
  const auto wrong = [&] {
    const Tensor y = x.detach() / sum(x.detach());
    return record("normalise", {x}, {}, y,
                  [](const Tensor& dy, const Gradients& into) { into[0] += 0.0 * dy; });
  };
  CHECK(!gradcheck(wrong, {{"x", x}}).passed());
  CHECK(gradcheck([&] { return x / sum(x); }, {{"x", x}}).passed());
}

TEST_CASE("kinks are left out by the caller") {
  const Tensor x = values({-1, 1e-5, 2});
  CHECK(!gradcheck([&] { return relu(x); }, {{"x", x}}).passed());
  GradcheckOptions options;
  options.skip = [](std::size_t input, Index element) { return input == 0 && element == 1; };
  const GradcheckReport report = gradcheck([&] { return relu(x); }, {{"x", x}}, options);
  CHECK(report.passed());
  CHECK(report.inputs[0].checked == 2);
}

TEST_CASE("a sample of the elements is spread over the input") {
  const Tensor x = Tensor::full({100}, 0.5, DType::f64);
  std::vector<Index> seen;
  GradcheckOptions options;
  options.most_elements = 5;
  options.skip = [&](std::size_t, Index element) {
    seen.push_back(element);
    return false;
  };
  CHECK(gradcheck([&] { return exp(x); }, {{"x", x}}, options).inputs[0].checked == 5);
  CHECK(seen == std::vector<Index>{0, 20, 40, 60, 80});
  x.data<double>()[80] = 0.6;
  options.skip = {};
  const GradcheckReport wrong = gradcheck([&] { return pow(x, 2) - x.detach() * 0.1; }, {{"x", x}}, options);
  CHECK(wrong.text().find(", 5 checked  WRONG") != std::string::npos);
}

TEST_CASE("inputs get their values back, parameters their gradients, and the thread its tape") {
  const Parameter weight(values({1, 2, 3, 4}, {2, 2}));
  const Tensor x = values({0.1, 0.7}, {1, 2});
  Tape tape;
  const Tensor before = linear(x, weight);
  GradcheckOptions options;
  options.second_order = true;
  const GradcheckReport report =
      gradcheck([&] { return linear(x, weight, {}, Unary::tanh); }, {{"x", x}, {"weight", weight}}, options);
  CHECK(report.passed());
  CHECK(x.to_vector<double>() == std::vector<double>{0.1, 0.7});
  CHECK(weight.value().to_vector<double>() == std::vector<double>{1, 2, 3, 4});
  CHECK(!weight.gradient().defined());
  CHECK(Tape::current() == &tape);
  CHECK(tape.memory().nodes == 1);
  tape.backward(before, values({1, 0}, {1, 2}));
  CHECK(weight.gradient().to_vector<double>() == std::vector<double>{0.1, 0.7, 0, 0});
}

TEST_CASE("inputs have their values even after an exception") {
  const Tensor x = values({1, 2});
  for (const Index directions : {0, 1}) {
    GradcheckOptions options;
    options.directions = directions;
    int calls = 0;
    const auto function = [&] {
      if (++calls == 4) throw Error("interrupted");
      return x * x;
    };
    CHECK_THROWS_AS(gradcheck(function, {{"x", x}}, options), Error);
    CHECK(x.to_vector<double>() == std::vector<double>{1, 2});
  }
}

TEST_CASE("inputs must be given and f64") {
  const Tensor x = Tensor::zeros({2});
  CHECK_THROWS_WITH_AS(gradcheck([&] { return x; }, {{"x", x}}),
                       "[gradcheck] inputs must be f64; got x=f32[2]; try to(DType::f64)", DTypeError);
  CHECK_THROWS_WITH_AS(gradcheck([&] { return x; }, {}),
                       "[gradcheck] there must be inputs; got none; try the tensors that the function reads",
                       Error);
}
