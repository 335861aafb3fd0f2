#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>

#include <type_traits>

using namespace tapeformer;

namespace {

/// The type behind a pointer or a Write.
template <class T>
DType type_of(T*) {
  return dtype_of<T>();
}
template <class T>
DType type_of(kernels::Write<T>) {
  return dtype_of<T>();
}
template <class On>
constexpr bool is_gpu(On) {
  return std::is_same<On, kernels::Cuda>::value;
}

Tensor on_cpu(const Shape& shape, DType type) { return Tensor::zeros(shape, type, Device::cpu()); }

}  // namespace

TEST_CASE("a kernel gets the type and the addresses of its tensors, and none for an undefined one") {
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor a = on_cpu({3}, type), b = on_cpu({3}, type);
    int calls = 0;
    dispatch("test", operands(a, Tensor(), b), [&](auto on, auto* pa, auto* nothing, auto* pb) {
      ++calls;
      CHECK(!is_gpu(on));
      CHECK(type_of(pa) == type);
      CHECK(static_cast<void*>(pa) == a.raw());
      CHECK(static_cast<void*>(pb) == b.raw());
      CHECK(nothing == nullptr);
    });
    CHECK(calls == 1);
  }
}

TEST_CASE("operands that do not fit are refused by name and type") {
  const Tensor x = on_cpu({2}, DType::f32);
  const auto nothing = [](auto, auto*, auto*) { CHECK(false); };
  CHECK(message_of<DTypeError>([&] { dispatch("test", operands(x, on_cpu({2}, DType::f64)), nothing); }) ==
        "[test] all operands must have one type; got f32[2] and f64[2]; try to(DType::f32)");
  CHECK(message_of<DTypeError>([&] { dispatch("test", operands(x, on_cpu({2}, DType::i32)), nothing); }) ==
        "[test] values must be floating-point numbers; got x=i32[2]; try to(DType::f32)");
  const Tensor narrow = on_cpu({2}, DType::bf16);
  CHECK(message_of<DTypeError>([&] { dispatch("test", operands(narrow, narrow), nothing); }) ==
        "[test] the CPU computes in f32 and f64, GPUs in bf16 too; got x=bf16[2] on cpu; try to(DType::f32)");
  CHECK(message_of<DTypeError>([&] { dispatch("test", operands(narrow, wide(narrow)), nothing); }) ==
        "[test] all operands must have one type; got bf16[2] and bf16[2]; try to(DType::f32)");
}

TEST_CASE("on a GPU, kernels get its tag and addresses, and f32 next to bf16 on request") {
  if (!has_gpu()) return;
  const Device gpu = Device::cuda(0);
  for (const DType type : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor x = Tensor::zeros({3}, type, gpu), sums = Tensor::zeros({1}, wide(type), gpu);
    int calls = 0;
    dispatch("test", operands(wide(sums), x), [&](auto on, auto* sum, auto* px) {
      ++calls;
      CHECK(is_gpu(on));
      CHECK(type_of(px) == type);
      CHECK(type_of(sum) == wide(type));
      CHECK(static_cast<void*>(px) == x.state()->storage->data);
    });
    CHECK(calls == 1);
  }
  int calls = 0;
  dispatch_on("test", gpu, [&](auto on) { calls += is_gpu(on) ? 1 : 100; });
  dispatch_on("test", Device::cpu(), [&](auto on) { calls += is_gpu(on) ? 100 : 1; });
  CHECK(calls == 2);
}

TEST_CASE("operands on two devices are refused, with a remedy") {
  if (!has_gpu()) return;
  const Device gpu = Device::cuda(0);
  const Tensor here = on_cpu({2}, DType::f32), there = Tensor::zeros({2}, DType::f32, gpu);
  const auto nothing = [](auto, auto*, auto*) { CHECK(false); };
  CHECK(message_of<DeviceError>([&] { dispatch("test", operands(here, there), nothing); }) ==
        "[test] all operands must be on one device; got f32[2] on cpu and f32[2] on cuda:0; try "
        "to(Device), or to(Device) of the model");
  CHECK(message_of<DeviceError>([&] { require_same_device("test", "ids", here, there); }) ==
        "[test] ids must be on the device of the values; got ids=f32[2] on cpu, values=f32[2] on cuda:0; "
        "try ids.to(Device)");
  require_same_device("test", "ids", there, there);
  require_same_device("test", "ids", Tensor(), there);
}

TEST_CASE("an error on a GPU names the operation and its operands") {
  if (!has_gpu()) return;
  const Device gpu = Device::cuda(0);
  const Tensor x = Tensor::zeros({2, 3}, DType::f32, gpu);
  const auto failing = [](auto, auto...) { throw DeviceError("[cuda] queuing it failed: no luck"); };
  CHECK(message_of<DeviceError>([&] { dispatch("test", operands(x, Tensor(), x), failing); }) ==
        "[test] queuing it failed: no luck; got f32[2,3], f32[2,3]");
  CHECK_THROWS_WITH_AS(dispatch_on("test", gpu, failing), "[test] queuing it failed: no luck", DeviceError);
  const auto other = [](auto, auto...) { throw ShapeError("as it is"); };
  CHECK(message_of<ShapeError>([&] { dispatch("test", operands(x), other); }) == "as it is");
}

TEST_CASE("a device error that a kernel left is reported before more is queued") {
  if (!has_gpu()) return;
  const Device gpu = Device::cuda(0);
  const Tensor x = Tensor::zeros({2}, DType::f32, gpu);
  cuda::watch_for_device_error(
      gpu.index, [](const cuda::DeviceErrorSlot&) { return "[ids] bad"; },
      [](cuda::DeviceErrorSlot* slot) { slot->position = 0; });
  CHECK(message_of<ShapeError>([&] { dispatch("test", operands(x), [](auto, auto*) { CHECK(false); }); }) ==
        "[ids] bad");
}
