#include <doctest/doctest.h>
#include <tapeformer/tests/autograd/cuda/runtime_case.h>
#include <tapeformer/tests/reference/support.h>

#include <string>
#include <vector>

using namespace tapeformer;

TEST_CASE("statistics count what is handed out, and the pool keeps what comes back") {
  const auto before = cuda::memory_statistics(0);
  {
    const DeviceBlock block(1 << 20);
    const auto during = cuda::memory_statistics(0);
    CHECK(during.in_use_bytes == before.in_use_bytes + (1 << 20));
    CHECK(during.peak_bytes >= during.in_use_bytes);
    CHECK(during.held_bytes >= during.in_use_bytes);
  }
  const auto after = cuda::memory_statistics(0);
  CHECK(after.in_use_bytes == before.in_use_bytes);
  CHECK(after.peak_bytes >= before.in_use_bytes + (1 << 20));
  const DeviceBlock nothing(0);
  CHECK(nothing.memory != nullptr);
}

TEST_CASE("memory released after queued kernels is reused before the device runs out") {
  if (cuda::is_host_readable()) return;
  const std::vector<unsigned char> bytes(64);  // in 10 GiB, a piece at a time, each released at once
  for (int i = 0; i < 20; ++i) {
    const DeviceBlock block(std::size_t{512} << 20, i % 2 == 1);
    if (i % 2 == 1) {
      cuda::upload(0, block.memory, bytes.data(), bytes.size());
    } else {
      cuda::overwrite(0, block.memory, bytes.data(), bytes.size());
    }
  }
  cuda::synchronize(0);
}

TEST_CASE("when memory runs out, the message says what was asked for, what is in use and what helps") {
  const std::size_t much = std::size_t{1} << 44;  // 16 TiB
  const std::string message = message_of<DeviceError>([&] { cuda::allocate(0, much); });
  CHECK(message.find("[memory] cuda:0 does not have 16777216 MiB left; asked=16777216 MiB, held=") == 0);
  CHECK(message.find(" MiB, in use=") != std::string::npos);
  CHECK(message.find(" MiB, free=") != std::string::npos);
  CHECK(message.find("; try a smaller batch, --recompute-layers or --precision bf16") != std::string::npos);
  CHECK(message_of<DeviceError>([&] { cuda::allocate_for_upload(0, much); }) == message);
  const DeviceBlock block(100);  // the device works on
  cuda::synchronize(0);
}

TEST_CASE("the recent peak counts from the memory in use at the last call") {
  const Tensor before = numbers(1);
  cuda::exchange_recent_peak(0);
  {
    const Tensor a = numbers(1);
    const Tensor b = numbers(1);
  }
  CHECK(cuda::exchange_recent_peak(0) == 2 * static_cast<std::int64_t>(kBytes));
  CHECK(cuda::exchange_recent_peak(0) == 0);
}
