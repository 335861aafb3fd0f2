#include <doctest/doctest.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/tests/reference/support.h>

using namespace tapeformer;

TEST_CASE("devices have names, and names have devices") {
  CHECK(Device::named("cpu") == Device::cpu());
  CHECK(Device::cpu().text() == "cpu");
  CHECK(Device::cuda().text() == "cuda:0");
  CHECK(Device::cuda(3).text() == "cuda:3");
  CHECK(Device::cuda(1) != Device::cuda(0));
  CHECK(Device::cuda(0) != Device::cpu());
  CHECK(!Device::cpu().is_cuda());
  CHECK(Device::cuda(1).is_cuda());
}

TEST_CASE("auto is the first GPU where there is one") {
  const bool has_gpu = cuda::device_count() > 0;
  CHECK(Device::named("auto") == (has_gpu ? Device::cuda(0) : Device::cpu()));
  if (has_gpu) {
    CHECK(Device::named("cuda") == Device::cuda(0));
    CHECK(Device::named("cuda:0") == Device::cuda(0));
  }
}

TEST_CASE("a missing GPU is refused, with the reason") {
  const std::string message = message_of<DeviceError>([] { Device::named("cuda:999"); });
  CHECK(message == "[device] there is no cuda:999: " + cuda::availability() + "; try cpu");
  CHECK(!cuda::availability().empty());
}

TEST_CASE("a name that is not a device is refused") {
  for (const char* name :
       {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1.5", "cuda0", "cuda:12345", "CPU"}) {
    CAPTURE(name);
    CHECK(message_of<DeviceError>([&] { Device::named(name); }) ==
          std::string("[device] a device must be cpu, cuda, cuda:N or auto; got ") + name + "; try cpu");
  }
}

TEST_CASE("tensors go to the default device, which can be chosen") {
  const Device before = default_device();
  set_default_device(Device::cpu());
  CHECK(Tensor::zeros({2}).device() == Device::cpu());
  CHECK(Tensor::from<double>({1, 2}).device() == Device::cpu());
  if (cuda::device_count() > 0) {
    set_default_device(Device::cuda(0));
    CHECK(Tensor::zeros({2}).device() == Device::cuda(0));
    CHECK(Tensor::from<double>({1, 2}).device() == Device::cuda(0));
    CHECK(Tensor::zeros({2}, DType::f32, Device::cpu()).device() == Device::cpu());
  }
  set_default_device(before);
}
