#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/parameter.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <vector>

using namespace tapeformer;

namespace {

Tensor floats(const std::vector<float>& elements) { return Tensor::from(elements); }

}  // namespace

TEST_CASE("operations read the bf16 shadow of a value in f32, until that is removed") {
  Parameter parameter(floats({1, 1.00390625f, -3.14159274f}));  // 2^-8: half of bf16's step at 1
  parameter.set_name("layer.weight");
  CHECK(parameter.used().state() == parameter.value().state());
  parameter.set_shadow(DType::bf16);
  CHECK(parameter.value().to_vector<float>() == std::vector<float>{1, 1.00390625f, -3.14159274f});
  CHECK(parameter.used().dtype() == DType::bf16);
  CHECK(parameter.used().to(DType::f32).to_vector<float>() == std::vector<float>{1, 1, -3.140625f});
  const Tensor& read = parameter;
  CHECK(read.state() == parameter.used().state());
  CHECK(read.describe() == "bf16[3] (layer.weight)");
  CHECK(read.state()->parameter == parameter.state());
  parameter.set_shadow(DType::f32);
  CHECK(parameter.used().state() == parameter.value().state());
  const Parameter none{};
  for (const Tensor& x : {none.value(), none.used(), none.gradient()}) CHECK_FALSE(x.defined());
}

TEST_CASE("a shadow is refreshed on request, in place, and follows a new value of the type") {
  Parameter parameter(floats({1, 2}));
  parameter.refresh_shadow();  // there is none
  parameter.set_shadow(DType::bf16);
  const Tensor shadow = parameter.used();
  parameter.value().copy_from(floats({5, 7.0078125f}));
  CHECK(shadow.to(DType::f32).to_vector<float>() == std::vector<float>{1, 2});
  parameter.refresh_shadow();
  CHECK(shadow.to(DType::f32).to_vector<float>() == std::vector<float>{5, 7});
  parameter.set_value(floats({8, 9, 10}));
  CHECK(parameter.used().describe() == "bf16[3]");
  CHECK(parameter.used().to(DType::f32).to_vector<float>() == std::vector<float>{8, 9, 10});
  CHECK(shadow.state()->parameter == nullptr);
  parameter.set_value(parameter.used());  // a copy: the shadow goes with the type
  CHECK(parameter.value().state()->parameter == parameter.state());
  parameter.set_value(values({1, 2}));
  CHECK(parameter.used().state() == parameter.value().state());
}

TEST_CASE("a new value has no gradient, and the next one is not added to what its memory held") {
  Parameter parameter(values({1, 2, 3}));
  const auto pass = [&] {
    Tape tape;
    tape.backward(sum(3.0 * parameter.value()));
  };
  pass();
  parameter.set_value(values({5, 6, 7}));
  CHECK(!parameter.gradient().defined());
  TensorList junk;
  for (int i = 0; i < 16; ++i) junk.push_back(Tensor::full({3}, NAN, DType::f64));
  junk.clear();
  pass();
  CHECK(parameter.gradient().to_vector<double>() == std::vector<double>{3, 3, 3});
}

TEST_CASE("other shadows are refused, and leave everything as it was") {
  Parameter parameter(floats({1, 2})), wide(values({1, 2}));
  parameter.set_shadow(DType::bf16);
  CHECK(message_of<DTypeError>([&] { parameter.set_shadow(DType::f64); }) ==
        "[set_shadow] an f32 value may have a shadow in bf16; got f64 for value=f32[2]; "
        "try to(DType::f32) before");
  CHECK(parameter.used().dtype() == DType::bf16);
  CHECK_THROWS_AS(wide.set_shadow(DType::bf16), DTypeError);
  CHECK_THROWS_AS(wide.set_shadow(DType::f32), DTypeError);
  wide.set_shadow(DType::f64);
  CHECK(wide.used().state() == wide.value().state());
}

TEST_CASE("tensors outlive the parameter whose value and shadow they were") {
  Tensor value, shadow;
  {
    Parameter parameter(floats({1, 2}));
    parameter.set_shadow(DType::bf16);
    value = parameter.value(), shadow = parameter.used();
  }
  CHECK(value.state()->parameter == nullptr);
  CHECK(shadow.state()->parameter == nullptr);
  CHECK(shadow.describe() == "bf16[2]");
}

TEST_CASE("a parameter that is frozen between two uses gets the gradient of the first") {
  Parameter x(values({2}));
  Tape tape;
  const Tensor first = x * 3.0;
  x.set_trainable(false);
  const Tensor y = first + x * 100.0;
  x.set_trainable(true);
  tape.backward(y);
  CHECK(x.gradient().item() == 3);
}

TEST_CASE("a value of another shape between forward and backward is refused") {
  Parameter x(values({2, 3}));
  Tape tape;
  const Tensor y = sum(x * x);
  x.set_value(values({1, 2, 3}));
  CHECK(message_of<TapeError>([&] { tape.backward(y); }) ==
        "[backward] a parameter's value was replaced by one of another shape, type or device after the "
        "forward pass had used it; got f64[3] for f64[2]; try set_value() after backward, or before the "
        "Tape");
}

TEST_CASE("a value that replaces the one a tape has used gets its gradient") {
  Parameter x(values({2, 3}));
  const Tensor before = x.value();
  Tape tape;
  const Tensor y = sum(x * x);
  x.set_value(values({10, 10}));
  CHECK(tape.gradients(y, {x})[0].to_vector<double>() == std::vector<double>{4, 6});
  CHECK(tape.gradients(y, {before})[0].to_vector<double>() == std::vector<double>{4, 6});
  tape.backward(y);
  CHECK(x.gradient().to_vector<double>() == std::vector<double>{4, 6});
}

TEST_CASE("a parameter may be gone before its tape, and its value be used as plain numbers") {
  auto x = std::make_unique<Parameter>(values({2, 3}));
  const Tensor value = x->value();
  Tape tape;
  const Tensor y = sum(*x * *x);
  x.reset();
  tape.backward(y);
  Tape next;
  CHECK(!next.tracks(value * 2.0));
}

TEST_CASE("parameters made from the value of another one leave it its gradients and its memory") {
  Parameter a(values({2})), b(a.value()), c(values({0}));
  c.set_value(a.value());
  {
    Tape tape;
    tape.backward(a * 3.0 + b * 5.0 + c * 7.0);
  }
  CHECK(a.gradient().item() == 3);
  CHECK(b.gradient().item() == 5);
  CHECK(c.gradient().item() == 7);
  c.value().copy_from(values({9}));
  CHECK(a.value().item() == 2);
}
