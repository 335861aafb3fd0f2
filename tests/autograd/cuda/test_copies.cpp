#include <doctest/doctest.h>
#include <tapeformer/tests/autograd/cuda/runtime_case.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

using namespace tapeformer;

namespace {

std::vector<unsigned char> pattern(std::size_t bytes, std::size_t seed) {
  std::vector<unsigned char> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<unsigned char>(i * 31 + i / 251 + seed);
  return made;
}

constexpr std::size_t kSizes[] = {1, 7, 4096, (std::size_t{4} << 20) - 1, (std::size_t{9} << 20) + 5};

}  // namespace

TEST_CASE("bytes of any number arrive and come back by every kind of copy") {
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

TEST_CASE("the source of an upload may be changed at once, however many uploads are on their way") {
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
  CHECK_NOTHROW(cuda::fill(0, DType::f32, 1, 0, other.memory));  // unfinished copies are not an error
  for (std::size_t i = 0; i < kUploads; ++i) {
    CHECK(downloaded(0, blocks[i]->memory, kBytes) == pattern(kBytes, i));
  }
}

TEST_CASE("a thread that uploads while another one copies disturbs nothing") {
  constexpr std::size_t kBytes = 5000;
  bool good[2] = {true, true};
  const auto work = [&](std::size_t seed) {
    for (std::size_t i = 0; i < 50; ++i) {
      const auto bytes = pattern(kBytes, seed + i);
      const DeviceBlock block(kBytes, true), duplicate(kBytes);
      cuda::upload(0, block.memory, bytes.data(), kBytes);
      cuda::copy(0, duplicate.memory, block.memory, kBytes);
      good[seed % 2] = good[seed % 2] && downloaded(0, duplicate.memory, kBytes) == bytes;
    }
  };
  std::thread other(work, 1001);
  work(2000);
  other.join();
  CHECK(good[0]);
  CHECK(good[1]);
}

TEST_CASE("kernels see what was uploaded before them, and uploads do not disturb what is queued") {
  const std::vector<float> numbers = {1, 2, 3};
  const DeviceBlock from(12, true), to(24);
  cuda::upload(0, from.memory, numbers.data(), 12);
  cuda::convert(0, DType::f32, from.memory, DType::f64, to.memory, 3);
  cuda::overwrite(0, from.memory, std::vector<float>(3, 9).data(), 12);
  std::vector<double> here(3);
  cuda::download(0, here.data(), to.memory, 24);
  CHECK(here == std::vector<double>{1, 2, 3});
}

TEST_CASE("bytes are copied from one device to another") {
  const int last = cuda::device_count() - 1;
  const auto bytes = pattern(3000, 5);
  const DeviceBlock from(3000);
  cuda::overwrite(0, from.memory, bytes.data(), 3000);
  void* there = cuda::allocate(last, 3000);
  cuda::copy_across(last, there, 0, from.memory, 3000);
  CHECK(downloaded(last, there, 3000) == bytes);
  cuda::release(last, there, 3000);
}
