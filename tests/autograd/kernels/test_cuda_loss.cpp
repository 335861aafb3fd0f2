#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <cmath>
#include <limits>
#include <string>

using namespace tapeformer;

namespace {

Tensor loss_seed() { return Tensor::scalar(-1.5, DType::f64, Device::cpu()); }

Function loss_of(const Tensor& targets, double smoothing, double softcap = 0) {
  return [=](const std::vector<Tensor>& x) {
    return cross_entropy(x[0], targets.to(x[0].device()), {-1, smoothing, softcap});
  };
}
Function linear_loss_of(const Tensor& targets, Index chunk, double smoothing = 0) {
  return [=](const std::vector<Tensor>& x) {
    LinearCrossEntropyOptions options;
    options.chunk = chunk, options.smoothing = smoothing;
    return linear_cross_entropy(x[0], x[1], x[2], targets.to(x[0].device()), options);
  };
}
/// The loss in plain operations of the logits' type. No target is ignored.
Tensor plain_loss(const Tensor& logits, const Tensor& targets) {
  const Tensor picks = targets.alias({targets.elements(), 1}).to(logits.device());
  return affine(mean(gather(log_softmax(logits), 1, picks)), -1, 0);
}

}  // namespace

TEST_CASE("the loss of bf16 logits is f32") {
  Generator random(test_seed(2));
  for (const Index classes : {31, 65, 1100}) {
    const Tensor targets = random_ids({9}, classes, random);
    const Tensor logits = affine(host_normal({9, classes}, random), 3, 0);
    for (const double cap : {0, 5}) {
      const Function plain = [&](const auto& x) {
        return plain_loss(cap > 0 ? softcap(x[0], cap) : x[0], targets);
      };
      check_bf16(loss_of(targets, 0, cap), plain, {logits}, loss_seed(), 1, DType::f32);
    }
  }
}

TEST_CASE("gradients of a head with a shadow in bf16 are f32, its sums exact to f32") {
  Generator random(test_seed(4));
  const Tensor x = on_gpu(Tensor::full({600, 4}, 1, DType::bf16, Device::cpu()));
  Parameter weight(on_gpu(Tensor::zeros({2, 4}, DType::f32, Device::cpu())));
  weight.set_shadow(DType::bf16);
  const Tensor targets = Tensor::zeros({600}, DType::i32, Device::cuda());
  LinearCrossEntropyOptions options;
  options.chunk = 7;
  Tape tape;
  tape.backward(linear_cross_entropy(x, weight, {}, targets, options));
  CHECK(weight.gradient().dtype() == DType::f32);
  // Each row brings bf16(1 / 1200), which a sum in bf16 would lose after 256 rows.
  const double row = Tensor::scalar(1.0 / 1200, DType::bf16, Device::cpu()).item();
  CHECK_BELOW(deviation(weight.gradient().at(0), -600 * row), 1e-5);
  CHECK_BELOW(deviation(weight.gradient().at(7), 600 * row), 1e-5);
}

TEST_CASE("a head's loss over rows that fit in registers, in shared memory and nowhere, and begin anywhere") {
  Generator random(test_seed(6));
  const Index all[] = {30001, 31, 64, 1030, 8200, 1101, 8205, 60000};  // odd ones with smoothing
  for (const Index& classes : all) {
    if (!is_tried(&classes - all)) continue;
    const Index rows = classes > 8000 ? 3 : 20;
    CAPTURE(classes);
    const std::vector<Tensor> x{host_normal({rows, 3}, random), host_normal({classes, 3}, random),
                                host_normal({classes}, random)};
    const Tensor targets = ids_with_gaps({rows}, classes, random);
    targets.data<std::int32_t>()[0] = static_cast<std::int32_t>(classes - 1);
    const Function f = linear_loss_of(targets, rows - 1, classes % 2 == 0 ? 0 : 0.2);
    check_as_on_cpu(f, x, loss_seed(), 0, 1e-12, 2e-4, absolute_error);
  }
}

TEST_CASE("a head's loss in bf16, in one chunk and in several, and over a row that a block keeps") {
  Generator random(test_seed(7));
  for (const Index classes : {65, 1101, 8300}) {
    CAPTURE(classes);
    const Tensor targets = random_ids({33}, classes, random);
    const std::vector<Tensor> x{host_normal({33, 24}, random), host_normal({classes, 24}, random),
                                host_normal({classes}, random)};
    const Function plain = [=](const auto& in) { return plain_loss(linear(in[0], in[1], in[2]), targets); };
    for (const Index chunk : {10, 0})
      if (chunk > 0 || !tries_few())
        check_bf16(linear_loss_of(targets, chunk), plain, x, loss_seed(), 1, DType::f32);
  }
}

TEST_CASE("impossible classes have no effect, and a NaN is not hidden") {
  Generator random(test_seed(8));
  for (const Index classes : {40, 1100, 9000}) {
    CAPTURE(classes);
    const Tensor x = host_normal({3, classes}, random),
                 targets = Tensor::full({3}, double(classes - 1), DType::i32, Device::cpu());
    for (Index i = 0; i < classes * 2 / 3; ++i)
      x.data<double>()[i] = x.data<double>()[classes + i] = -std::numeric_limits<double>::infinity();
    const Function f = loss_of(targets, 0);
    const auto expected = with_gradients(f, {x}, loss_seed());
    for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
      const auto got = with_gradients(f, {on_gpu(x.to(type))}, on_gpu(loss_seed()));
      check_near(got, expected, type == DType::bf16 ? 0.02 : 1e-5, absolute_error);
    }
    x.data<double>()[classes - 1] = -std::numeric_limits<double>::infinity();  // the target of the first row
    for (const double smoothing : {0.0, 0.1})
      CHECK(loss_of(targets, smoothing)({on_gpu(x)}).item() == std::numeric_limits<double>::infinity());
    x.data<double>()[classes / 2] = std::numeric_limits<double>::quiet_NaN();
    CHECK(std::isnan(f({on_gpu(x)}).item()));
    CHECK(std::isnan(f({on_gpu(x.to(DType::bf16))}).item()));
  }
}

TEST_CASE("more rows than a block counts and adds up") {
  Generator random(test_seed(9));
  const Index rows = 40000;
  const Tensor x = host_normal({rows, 2}, random), targets = ids_with_gaps({rows}, 2, random);
  const Function f = loss_of(targets, 0);
  CHECK_BELOW(deviation(f({on_gpu(x)}).item(), f({x}).item()), 1e-13);
  for (const Index last : {rows - 1, Index{20001}, Index{5}}) {
    targets.data<std::int32_t>()[last] = 7;
    const auto message = [&](Device device) {
      return message_of<ShapeError>([&] { cross_entropy(x.to(device), targets.to(device)).item(); });
    };
    CHECK(message(Device::cuda()) == message(Device::cpu()));
    CHECK(message(Device::cpu()).find("got 7 at [" + std::to_string(last) + "]") != std::string::npos);
  }
}
