#include <doctest/doctest.h>
#include <tapeformer/tests/autograd/cuda/runtime_case.h>
#include <tapeformer/tests/reference/support.h>

#include <string>

using namespace tapeformer;

TEST_CASE("a device has a name with its memory and architecture") {
  const std::string name = cuda::device_name(0);
  CHECK(name.find(" GiB, sm_") != std::string::npos);
  CHECK(message_of<DeviceError>([] {
          cuda::device_name(cuda::device_count());
        }).find("[cuda] there is no cuda:" + std::to_string(cuda::device_count())) == 0);
}

TEST_CASE("a call that fails names what was being done") {
  if (cuda::is_host_readable()) return;
  const DeviceBlock block(100);
  const std::string message =
      message_of<DeviceError>([&] { cuda::copy(0, block.memory, block.memory, std::size_t{1} << 50); });
  CHECK(message.find("[cuda] copying on a GPU failed: invalid argument") == 0);
  cuda::synchronize(0);
}
