#include <doctest/doctest.h>
#include <tapeformer/tests/autograd/cuda/runtime_case.h>
#include <tapeformer/tests/reference/support.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>

using namespace tapeformer;

namespace {

void leave_none(cuda::DeviceErrorSlot*) {}
/// Reports an error as a kernel does.
auto leave_error(std::int64_t position, std::int32_t value) {
  return [=](cuda::DeviceErrorSlot* slot) {
    slot->value = value;
    slot->position = position;
  };
}
std::string described(const cuda::DeviceErrorSlot& error) {
  return "[test] at " + std::to_string(error.position) + " stands " + std::to_string(error.value);
}

}  // namespace

TEST_CASE("a device error is reported once, by whatever waits, as its watcher describes it") {
  cuda::watch_for_device_error(
      0, [](const cuda::DeviceErrorSlot&) { return "the wrong one"; }, leave_none);
  const DeviceBlock block(4);
  const std::function<void()> all[] = {[] { cuda::report_device_errors(0); }, [] { cuda::synchronize(0); },
                                       [&] { downloaded(0, block.memory, 4); }};
  for (const auto& wait : all) {
    CHECK_NOTHROW(wait());
    cuda::watch_for_device_error(0, described, leave_error(17, -4));
    CHECK(message_of<ShapeError>(wait) == "[test] at 17 stands -4");
    CHECK_NOTHROW(wait());
  }
}

TEST_CASE("a failed device throws wherever it is waited for or given work, until its failure is cleared") {
  const Tensor x = numbers(1);
  cuda::set_failure(0, std::make_exception_ptr(DataError("", 0, "the network is down")));
  CHECK_THROWS_AS(cuda::synchronize(0), DataError);
  CHECK_THROWS_AS(cuda::report_device_errors(0), DataError);
  CHECK_THROWS_AS(x.to_vector<double>(), DataError);
  cuda::set_failure(0, nullptr);
  CHECK(x.to_vector<double>()[0] == 1);
}

TEST_CASE("any number of watches finds room, and an earlier error is not lost among them") {
  for (int i = 0; i < 1000; ++i) cuda::watch_for_device_error(0, described, leave_none);
  cuda::watch_for_device_error(0, described, leave_error(8, 9));
  const std::string message = message_of<ShapeError>([] {
    for (int i = 0; i < 1000; ++i) cuda::watch_for_device_error(0, described, leave_none);
  });
  CHECK(message == "[test] at 8 stands 9");
  CHECK_NOTHROW(cuda::synchronize(0));
}

TEST_CASE("a wait of another thread does not lose the error of a kernel that is about to be queued") {
  std::string message;
  std::thread other;
  cuda::watch_for_device_error(0, described, [&](cuda::DeviceErrorSlot* slot) {
    other = std::thread([&] { message = message_of<ShapeError>([] { cuda::synchronize(0); }); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    leave_error(3, 5)(slot);
  });
  other.join();
  CHECK(message == "[test] at 3 stands 5");
}

TEST_CASE("the captures of a description are released when its kernel is done") {
  const auto held = std::make_shared<int>(1);
  cuda::watch_for_device_error(
      0, [held](const cuda::DeviceErrorSlot&) { return ""; }, leave_none);
  CHECK(held.use_count() == 2);
  cuda::synchronize(0);
  CHECK(held.use_count() == 1);
}
