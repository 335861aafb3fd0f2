#include <doctest/doctest.h>
#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/reference/support.h>

#include <algorithm>
#include <memory>
#include <thread>

using namespace tapeformer;

namespace {

/// False, with a message, where there is no GPU: then there is nothing to test.
std::vector<unsigned char> pattern(std::size_t bytes, std::size_t seed) {
  std::vector<unsigned char> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<unsigned char>(i * 31 + i / 251 + seed);
  return made;
}

std::vector<unsigned char> downloaded(int device, const void* from, std::size_t bytes) {
  std::vector<unsigned char> here(bytes);
  cuda::download(device, here.data(), from, bytes);
  return here;
}

/// A block of a GPU's memory, released at the end.
struct DeviceBlock {
  explicit DeviceBlock(std::size_t size, bool for_upload = false)
      : bytes(size), memory(for_upload ? cuda::allocate_for_upload(0, size) : cuda::allocate(0, size)) {}
  ~DeviceBlock() { cuda::release(0, memory, bytes); }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  std::size_t bytes;
  void* memory;
};

constexpr std::size_t kSizes[] = {1, 7, 4096, (std::size_t{4} << 20) - 1, (std::size_t{9} << 20) + 5};

}  // namespace

TEST_SUITE("autograd/kernels/cuda_runtime") {
  TEST_CASE("a build or a machine without GPUs says so wherever one is asked for") {
    if (cuda::device_count() > 0) return;
    CHECK(!cuda::availability().empty());
    CHECK(message_of<DeviceError>([] { cuda::allocate(0, 1); }).find(cuda::availability()) !=
          std::string::npos);
  }

  TEST_CASE("a device has a name with its memory and architecture") {
    if (!has_gpu()) return;
    const std::string name = cuda::device_name(0);
    CHECK(name.find(" GiB, sm_") != std::string::npos);
    CHECK(message_of<DeviceError>([] {
            cuda::device_name(cuda::device_count());
          }).find("[cuda] there is no cuda:" + std::to_string(cuda::device_count())) == 0);
  }

  TEST_CASE("bytes arrive and come back, whatever their number, by every way there is") {
    if (!has_gpu()) return;
    for (const std::size_t size : kSizes) {
      CAPTURE(size);
      const auto first = pattern(size, 1), second = pattern(size, 2);
      const DeviceBlock uploaded(size, true), copied(size);
      cuda::upload(0, uploaded.memory, first.data(), size);
      cuda::copy(0, copied.memory, uploaded.memory, size);
      cuda::overwrite(0, uploaded.memory, second.data(), size);
      CHECK(downloaded(0, copied.memory, size) == first);
      CHECK(downloaded(0, uploaded.memory, size) == second);
    }
  }

  TEST_CASE("what was given to an upload may be changed at once, however many are on their way") {
    if (!has_gpu()) return;
    constexpr std::size_t kUploads = 100, kBytes = 1000;
    std::vector<std::unique_ptr<DeviceBlock>> blocks;
    std::vector<unsigned char> bytes(kBytes);
    for (std::size_t i = 0; i < kUploads; ++i) {
      blocks.push_back(std::make_unique<DeviceBlock>(kBytes, i % 2 == 0));
      bytes = pattern(kBytes, i);
      if (i % 2 == 0) {
        cuda::upload(0, blocks[i]->memory, bytes.data(), kBytes);
      } else {
        cuda::overwrite(0, blocks[i]->memory, bytes.data(), kBytes);
      }
      std::fill(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
    }
    const DeviceBlock other(4);
    CHECK_NOTHROW(cuda::fill(0, DType::f32, 1, 0, other.memory));  // that some are not done is no error
    for (std::size_t i = 0; i < kUploads; ++i) {
      CHECK(downloaded(0, blocks[i]->memory, kBytes) == pattern(kBytes, i));
    }
  }

  TEST_CASE("a thread that uploads while another one copies disturbs nothing") {
    if (!has_gpu()) return;
    constexpr std::size_t kBytes = 5000;
    bool good[2] = {true, true};
    const auto work = [&](std::size_t seed) {
      for (std::size_t i = 0; i < 50; ++i) {
        const auto bytes = pattern(kBytes, seed + i);
        const DeviceBlock block(kBytes, true), twin(kBytes);
        cuda::upload(0, block.memory, bytes.data(), kBytes);
        cuda::copy(0, twin.memory, block.memory, kBytes);
        good[seed % 2] = good[seed % 2] && downloaded(0, twin.memory, kBytes) == bytes;
      }
    };
    std::thread other(work, 1001);
    work(2000);
    other.join();
    CHECK(good[0]);
    CHECK(good[1]);
  }

  TEST_CASE("kernels see what was uploaded before them, and uploads do not disturb what is queued") {
    if (!has_gpu()) return;
    const std::vector<float> numbers = {1, 2, 3};
    const DeviceBlock from(12, true), to(24);
    cuda::upload(0, from.memory, numbers.data(), 12);
    cuda::convert(0, DType::f32, from.memory, DType::f64, to.memory, 3);
    cuda::overwrite(0, from.memory, std::vector<float>(3, 9).data(), 12);
    std::vector<double> here(3);
    cuda::download(0, here.data(), to.memory, 24);
    CHECK(here == std::vector<double>{1, 2, 3});
  }

  TEST_CASE("from one device to another") {
    if (!has_gpu()) return;
    const int last = cuda::device_count() - 1;
    const auto bytes = pattern(3000, 5);
    const DeviceBlock from(3000);
    cuda::overwrite(0, from.memory, bytes.data(), 3000);
    void* there = cuda::allocate(last, 3000);
    cuda::copy_across(last, there, 0, from.memory, 3000);
    CHECK(downloaded(last, there, 3000) == bytes);
    cuda::release(last, there, 3000);
  }

  TEST_CASE("statistics count what is handed out, and the pool keeps what comes back") {
    if (!has_gpu()) return;
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

  TEST_CASE("memory of kernels that are queued is used again before the device has none left") {
    if (!has_gpu() || cuda::is_host_readable()) return;
    const auto bytes = pattern(64, 0);  // and 10 GiB around it, a piece at a time, each released at once
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

  TEST_CASE("when memory runs out, the message says what was asked for, what is there and what helps") {
    if (!has_gpu()) return;
    const std::size_t much = std::size_t{1} << 44;  // 16 TiB
    const std::string message = message_of<DeviceError>([&] { cuda::allocate(0, much); });
    CHECK(message.find("[memory] cuda:0 has no 16777216 MiB left; asked=16777216 MiB, held=") == 0);
    CHECK(message.find(" MiB, in use=") != std::string::npos);
    CHECK(message.find(" MiB, free=") != std::string::npos);
    CHECK(message.find("; try a smaller batch, --recompute-layers or --precision bf16") != std::string::npos);
    CHECK(message_of<DeviceError>([&] { cuda::allocate_for_upload(0, much); }) == message);
    const DeviceBlock block(100);  // the device works on
    cuda::synchronize(0);
  }

  TEST_CASE("a call that fails names what was being done") {
    if (!has_gpu() || cuda::is_host_readable()) return;
    const DeviceBlock block(100);
    const std::string message =
        message_of<DeviceError>([&] { cuda::copy(0, block.memory, block.memory, std::size_t{1} << 50); });
    CHECK(message.find("[cuda] copying on a GPU failed: invalid argument") == 0);
    cuda::synchronize(0);
  }
}

TEST_SUITE("autograd/kernels/cuda_runtime: device errors") {
  /// Does what a kernel does when it finds an error.
  void offend(cuda::DeviceErrorSlot * watch, std::int64_t position, std::int32_t value) {
    watch->value = value;
    watch->position = position;
  }
  std::string described(const cuda::DeviceErrorSlot& error) {
    return "[test] at " + std::to_string(error.position) + " stands " + std::to_string(error.value);
  }

  TEST_CASE("nothing is reported when nothing was wrong") {
    if (!has_gpu()) return;
    const cuda::DeviceErrorSlot* watch = cuda::watch_for_device_error(0, described);
    CHECK(watch != nullptr);
    CHECK_NOTHROW(cuda::report_device_errors(0));
    CHECK_NOTHROW(cuda::synchronize(0));
  }

  TEST_CASE("a device error is reported once, as its watcher describes it") {
    if (!has_gpu()) return;
    cuda::watch_for_device_error(0, [](const cuda::DeviceErrorSlot&) { return "the wrong one"; });
    offend(cuda::watch_for_device_error(0, described), 17, -4);
    CHECK(message_of<ShapeError>([] { cuda::report_device_errors(0); }) == "[test] at 17 stands -4");
    CHECK_NOTHROW(cuda::report_device_errors(0));
    offend(cuda::watch_for_device_error(0, described), 0, 5);
    CHECK(message_of<ShapeError>([] { cuda::synchronize(0); }) == "[test] at 0 stands 5");
    CHECK_NOTHROW(cuda::synchronize(0));
  }

  TEST_CASE("downloads report device errors too") {
    if (!has_gpu()) return;
    const DeviceBlock block(4);
    offend(cuda::watch_for_device_error(0, described), 3, 3);
    CHECK(message_of<ShapeError>([&] { downloaded(0, block.memory, 4); }) == "[test] at 3 stands 3");
  }

  TEST_CASE("watches without end find room, and an old error is not lost in them") {
    if (!has_gpu()) return;
    for (int i = 0; i < 1000; ++i) cuda::watch_for_device_error(0, described);
    offend(cuda::watch_for_device_error(0, described), 8, 9);
    const std::string message = message_of<ShapeError>([] {
      for (int i = 0; i < 1000; ++i) cuda::watch_for_device_error(0, described);
    });
    CHECK(message == "[test] at 8 stands 9");
    CHECK_NOTHROW(cuda::synchronize(0));
  }

  TEST_CASE("what a watcher holds is let go when its kernel is done") {
    if (!has_gpu()) return;
    const auto held = std::make_shared<int>(1);
    cuda::watch_for_device_error(0, [held](const cuda::DeviceErrorSlot&) { return ""; });
    CHECK(held.use_count() == 2);
    cuda::synchronize(0);
    CHECK(held.use_count() == 1);
  }
}
