#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/optim/sgd.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/optim/optim_case.h>

#include <memory>

using namespace tapeformer;

namespace {

using Make = std::function<std::unique_ptr<Optimizer>(const Parameter&)>;

std::vector<Make> optimizers() {
  const auto sgd = [](double momentum) {
    return [=](const Parameter& x) {
      return std::make_unique<Sgd>(std::vector{x}, SgdConfig{momentum, 0.1});
    };
  };
  return {[](const Parameter& x) { return std::make_unique<AdamW>(std::vector{x}); }, sgd(0), sgd(0.9)};
}

/// A parameter after three steps with the gradients of `seed`.
Parameter trained(const Make& make, const Shape& shape, DType type, Device device, bool has_shadow) {
  Generator random(6);
  Parameter x(host_normal(shape, random, type).to(device));
  if (has_shadow) x.set_shadow(DType::bf16);
  const auto optimizer = make(x);
  for (int step = 0; step < 3; ++step) {
    set_gradient(x, host_normal(shape, random, type).to(device));
    optimizer->step(0.1, 0.5);
  }
  return x;
}

}  // namespace

TEST_SUITE("autograd/kernels/cuda_optim") {
  TEST_CASE("steps lead where the CPU's lead") {
    if (!has_gpu()) return;
    for (const Make& make : optimizers()) {
      for (const Index count : {0, 1, 255, 257, 1000}) {
        const Parameter exact = trained(make, {count}, DType::f64, Device::cpu(), false);
        for (const DType type : {DType::f64, DType::f32}) {
          const Parameter got = trained(make, {count}, type, Device::cuda(), false);
          CHECK(got.value().device() == Device::cuda());
          CHECK(relative_error(readable(got.value()), exact.value()) < (type == DType::f64 ? 1e-14 : 1e-5));
        }
      }
    }
  }

  TEST_CASE("a shadow follows its value, on the CPU too") {
    std::vector<Device> devices{Device::cpu()};
    if (has_gpu()) devices.push_back(Device::cuda());
    for (const Make& make : optimizers()) {
      for (const Device device : devices) {
        for (const Index count : {1, 1000}) {
          const Parameter x = trained(make, {count}, DType::f32, device, true);
          CHECK(x.used().dtype() == DType::bf16);
          CHECK(same_values(x.used(), x.value().to(DType::bf16)));
          CHECK(same_values(x.value(), trained(make, {count}, DType::f32, device, false).value()));
        }
      }
    }
  }

  TEST_CASE("the norm of gradients is the CPU's to double's accuracy, the same twice, and scales them") {
    if (!has_gpu()) return;
    Generator random(7);
    std::vector<Parameter> here, there;
    for (const Shape& shape : {Shape{1}, Shape{63}, Shape{64}, Shape{65, 3}, Shape{1000, 77}, Shape{0}}) {
      const Tensor gradient = host_normal(shape, random, DType::f32);
      here.emplace_back(Tensor::zeros(shape, DType::f32, Device::cpu()));
      there.emplace_back(Tensor::zeros(shape, DType::f32, Device::cuda()));
      set_gradient(here.back(), gradient);
      set_gradient(there.back(), on_gpu(gradient));
    }
    there.emplace_back(Tensor::zeros({5}, DType::f32, Device::cuda()));  // without gradient
    const double norm = gradient_norm(here);
    CHECK(gradient_norm(there) == doctest::Approx(norm).epsilon(1e-14));
    CHECK(gradient_norm(there) == gradient_norm(there));
    clip_gradient_norm(here, 1);
    clip_gradient_norm(there, 1);
    for (std::size_t i = 0; i < here.size(); ++i)
      CHECK(relative_error(readable(there[i].gradient()), readable(here[i].gradient())) < 1e-6);
    CHECK(gradient_norm({}) == 0);
  }
}
