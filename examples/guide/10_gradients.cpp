// Gradients: how the library knows that its backward passes are right.
#include <tapeformer/autograd/gradcheck/gradcheck.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/guide/show.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/nn/formats/checkpoint.h>

using namespace tapeformer;

/// Softmax with a backward of its own: y * (dy - sum(y * dy)), or without the sum, as it is easily forgotten.
Tensor own_softmax(const Tensor& x, bool forgets_the_sum) {
  const Tensor y = [&] {
    NoGradGuard unrecorded;
    return softmax(x);
  }();
  return record("own_softmax", {x}, {y}, y, [=](const Tensor& dy, const Gradients& into) {
    into[0] += forgets_the_sum ? y * dy : y * (dy - sum(y * dy, {-1}, true));
  });
}

void print(const char* title, const GradcheckReport& report) {
  std::printf("%s: %s\n", title, report.passed() ? "passed" : "FAILED");
  for (const GradcheckInput& input : report.inputs) {
    const char* error = input.relative_error < 1e-7 ? "below 1e-7" : "large";
    std::printf("  %-28s %5d elements, relative error %s\n", input.name.c_str(),
                static_cast<int>(input.checked), error);
  }
}

int main() {
  Generator random(1);
  const Tensor x_tc = Tensor::randn({3, 5}, random, DType::f64);
  print("softmax", gradcheck([&] { return own_softmax(x_tc, false); }, {{"x", x_tc}}));
  print("softmax without the sum", gradcheck([&] { return own_softmax(x_tc, true); }, {{"x", x_tc}}));

  const Tensor x = Tensor::from<double>({1, 2, 3});
  Tape tape;
  tape.watch(x);
  const Tensor y = sum(x * x * x);
  const Tensor dx = tape.gradients(y, {x}, {}, /*recorded=*/true)[0];  // 3 x^2
  const Tensor ddx = tape.gradients(sum(dx), {x})[0];                  // 6 x
  std::printf("x^3 at 1, 2, 3: first derivatives %g %g %g, second %g %g %g\n", dx.at(0), dx.at(1), dx.at(2),
              ddx.at(0), ddx.at(1), ddx.at(2));

  AttentionConfig config;
  config.width = 8, config.heads = 2, config.rotary = true;
  MultiHeadAttention attention(config, random);
  attention.to(DType::f64);
  const Tensor x_btc = Tensor::randn({2, 4, 8}, random, DType::f64);
  AttentionContext context;
  context.causal = true;
  auto inputs = weights_of(attention);
  inputs.emplace(inputs.begin(), "x", x_btc);
  GradcheckOptions options;
  options.second_order = true;
  const GradcheckReport report = gradcheck([&] { return attention(x_btc, x_btc, context); }, inputs, options);
  print("multi-head attention, causal, rotary", report);
  std::printf("and its second derivatives: %s\n", report.passed() ? "passed" : "FAILED");
}
