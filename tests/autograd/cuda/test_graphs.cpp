#include <doctest/doctest.h>
#include <tapeformer/autograd/cuda/readback.h>
#include <tapeformer/autograd/kernels/ids.h>
#include <tapeformer/tests/autograd/cuda/runtime_case.h>
#include <tapeformer/tests/autograd/kernels/full_device.h>
#include <tapeformer/tests/reference/support.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace tapeformer;

TEST_CASE("captured work does not run, and a graph runs as often as it is launched") {
  const Tensor x = numbers(1), y = numbers(2), z = numbers(3);
  const auto graph = captured([&] {
    cuda::copy(0, on_device(z), on_device(y), kBytes);
    cuda::copy(0, on_device(y), on_device(x), kBytes);
  });
  CHECK(graph->nodes() == 2);
  CHECK(y.at(999) == 2);
  CHECK(z.at(0) == 3);
  graph->launch();
  CHECK(y.at(999) == 1);
  CHECK(z.at(0) == 2);
  fill(on_device(x), 7);  // after the first launch, before the second
  graph->launch();
  CHECK(y.at(0) == 7);
  CHECK(z.at(0) == 1);
}

TEST_CASE("an unfinished capture has no effect, and the device keeps working") {
  const Tensor x = numbers(1);
  {
    const cuda::Capture capture(0, 0);
    CHECK(cuda::is_capturing());
    fill(on_device(x), 5);
  }
  CHECK_FALSE(cuda::is_capturing());
  CHECK(x.at(5) == 1);
  fill(on_device(x), 6);
  CHECK(x.at(5) == 6);
}

TEST_CASE("work that the device refuses is NotCapturable in a capture, and a device error elsewhere") {
  const Tensor x = numbers(1);
  const auto refused = [&] { cuda::copy(0, nullptr, on_device(x), kBytes); };
  CHECK_THROWS_AS(captured(refused), cuda::NotCapturable);
  CHECK_FALSE(cuda::is_capturing());
  CHECK_THROWS_AS(refused(), DeviceError);
  CHECK(x.at(5) == 1);
}

TEST_CASE("a capture that needs too much memory is refused, and nothing is captured") {
  const Tensor x = numbers(1);
  const std::string message =
      message_of<cuda::NotCapturable>([] { const cuda::Capture capture(0, std::int64_t{1} << 50); });
  CHECK(message.find("[memory] cuda:0 does not have") == 0);
  CHECK_FALSE(cuda::is_capturing());
  fill(on_device(x), 2);
  CHECK(x.at(0) == 2);
}

TEST_CASE("a graph that finds no memory is not made, and the device keeps working") {
  // The memory of a graph on a real device is unknown.
  if (!FullDevice::is_possible() || cuda::device_name(0).find("emulated") != 0) return;
  const Tensor x = numbers(1), y = numbers(2);
  const FullDevice full(1);
  const auto copies = [&](int count) {
    return [&, count] {
      for (int i = 0; i < count; ++i) cuda::copy(0, on_device(y), on_device(x), kBytes);
    };
  };
  CHECK(message_of<cuda::NotCapturable>([&] {
          captured(copies(2000));
        }).find("[cuda] a capture gave no graph: ") == 0);
  CHECK(y.at(5) == 2);
  captured(copies(1))->launch();
  CHECK(y.at(5) == 1);
}

TEST_CASE("an allocation that finds no memory evicts graphs, and their results stay") {
  if (!FullDevice::is_possible()) return;
  for (const bool for_upload : {false, true}) {
    CAPTURE(for_upload);
    const Tensor x = numbers(1), y = numbers(2);
    const FullDevice full(8);
    const auto works = [&](const Tensor& to, double value) {
      const Handle<Storage> block = FullDevice::block(5);
      fill(block->data, value);
      cuda::copy(0, on_device(to), block->data, kBytes);
    };
    const auto one = captured([&] { works(x, 7); });
    const auto other = captured([&] { works(y, 8); });
    one->launch();
    other->launch();  // both may still be running
    CHECK_FALSE(one->is_evicted());
    const std::size_t bytes = 6 * FullDevice::unit();
    void* const block = for_upload ? cuda::allocate_for_upload(0, bytes) : cuda::allocate(0, bytes);
    fill(block, 0);
    CHECK(one->is_evicted());
    CHECK(other->is_evicted());
    CHECK(x.at(999) == 7);
    CHECK(y.at(999) == 8);
    cuda::release(0, block, bytes);
    const auto again = captured([&] { works(y, 3); });
    again->launch();
    CHECK(y.at(0) == 3);
    CHECK_FALSE(again->is_evicted());
  }
}

TEST_CASE("memory that outlives its capture stays when the graph is evicted") {
  if (!FullDevice::is_possible()) return;
  const FullDevice full(8);
  std::optional<Tensor> kept;
  const auto graph = captured([&] {
    FullDevice::block(5);
    kept = numbers(9);
  });
  graph->launch();
  CHECK(message_of<DeviceError>([] { FullDevice::block(6); }).find("[memory] cuda:0 does not have ") == 0);
  CHECK(graph->is_evicted());
  CHECK(kept->at(999) == 9);
  fill(on_device(*kept), 5);
  CHECK(kept->at(0) == 5);
  kept.reset();
  FullDevice::block(6);
}

TEST_CASE("neither a capture nor another thread evicts graphs") {
  if (!FullDevice::is_possible()) return;
  const Tensor y = numbers(2);
  const FullDevice full(8);
  const auto graph = captured([&] {
    const Handle<Storage> block = FullDevice::block(5);
    fill(block->data, 4);
    cuda::copy(0, on_device(y), block->data, kBytes);
  });
  const auto more = static_cast<std::int64_t>(10 * FullDevice::unit());
  CHECK_THROWS_AS([&] { const cuda::Capture capture(0, more); }(), cuda::NotCapturable);
  CHECK_THROWS_WITH_AS(captured([] { FullDevice::block(10); }),
                       doctest::Contains("memory that is not free at once"), cuda::NotCapturable);
  std::string message;
  std::thread([&] { message = message_of<DeviceError>([] { FullDevice::block(6); }); }).join();
  CHECK(message.find("[memory] cuda:0 does not have ") == 0);
  REQUIRE_FALSE(graph->is_evicted());
  graph->launch();
  CHECK(y.at(1) == 4);
}

TEST_CASE("a graph that another thread destroys does not take the memory of one that is being made") {
  const Tensor y = numbers(0);
  for (int i = 1; i <= 200; ++i) {
    std::atomic<bool> is_near{false};
    auto last = captured([] {});
    const auto other = std::async(std::launch::async, [&] {
      while (!is_near) std::this_thread::yield();
      const auto moment = std::chrono::steady_clock::now() + std::chrono::nanoseconds(100 * i);
      while (std::chrono::steady_clock::now() < moment) continue;
      last.reset();
    });
    const std::shared_ptr<void> release(nullptr, [&](void*) { is_near = true; });  // after a throw, too
    const auto graph = captured([&] {
      const Tensor x = numbers(i);
      cuda::copy(0, on_device(y), on_device(x), kBytes);
      is_near = true;
    });
    other.wait();
    graph->launch();
    CHECK(y.at(999) == i);
  }
}

TEST_CASE("a call that would wait, read or upload is refused by name, and leaves the capture whole") {
  const Tensor x = numbers(1), y = numbers(0);
  double here = 9;
  const std::vector<std::pair<std::string, std::function<void()>>> refused = {
      {"waiting for the device", [] { cuda::synchronize(0); }},
      {"a read of the device's memory", [&] { cuda::download(0, &here, on_device(x), 8); }},
      {"a read of the device's memory", [&] { cuda::Readback(0, on_device(x), 8); }},
      {"a read of a tensor by the host", [&] { x.data<double>(); }},
      {"an upload", [&] { cuda::overwrite(0, on_device(x), &here, 8); }},
      {"an upload", [&] { cuda::upload(0, on_device(x), &here, 8); }},
      {"an upload", [] { cuda::allocate_for_upload(0, 8); }},
      {"another capture", [] { const cuda::Capture inner(0, 0); }}};
  const auto graph = captured([&] {
    for (const auto& [what, call] : refused)
      CHECK(message_of<cuda::NotCapturable>(call) == "[cuda] a graph cannot hold " + what);
    cuda::copy(0, on_device(y), on_device(x), kBytes);
  });
  graph->launch();
  CHECK(y.at(0) == 1);
  CHECK(here == 9);
  for (const auto& [what, call] : refused)
    if (what == "an upload") call();
}

TEST_CASE("another thread gets an error while the device is captured") {
  const Tensor x = numbers(1);
  std::string message;
  {
    const cuda::Capture capture(0, 0);
    std::thread([&] { message = message_of<DeviceError>([&] { fill(on_device(x), 2); }); }).join();
  }
  CHECK(message == "[cuda] another thread is capturing on cuda:0; try again when it has finished");
  CHECK(x.at(0) == 1);
}

TEST_CASE("memory that another thread releases while captures begin is not part of their graphs") {
  const Tensor x = numbers(1), y = numbers(2);
  std::vector<void*> blocks(10000);
  for (void*& block : blocks) block = cuda::allocate(0, 8);
  const auto other = std::async(std::launch::async, [&] {
    for (void* const block : blocks) cuda::release(0, block, 8);
  });
  for (int i = 0; i < 100; ++i)
    CHECK(captured([&] { cuda::copy(0, on_device(y), on_device(x), kBytes); })->nodes() == 1);
}

TEST_CASE("each launch checks its input again, and reports an error with the message given in the capture") {
  const Tensor ids = Tensor::full({4}, 3, DType::i32, Device::cuda()),
               counted = Tensor::zeros({1}, DType::i32, Device::cuda());
  const auto graph = captured([&] {
    const auto describe = [](const cuda::DeviceErrorSlot& found) {
      return "got " + std::to_string(found.value) + " at " + std::to_string(found.position);
    };
    cuda::watch_for_device_error(0, describe, [&](cuda::DeviceErrorSlot* error) {
      kernels::check_ids(kernels::Cuda{0}, 4, ids.address<std::int32_t>(), kernels::IdRange{0, 5},
                         counted.address<std::int32_t>(), error);
    });
  });
  const auto run = [&](double id) {
    cuda::fill(0, DType::i32, 4, id, ids.address<std::int32_t>());
    graph->launch();
    cuda::synchronize(0);
  };
  run(4);
  CHECK(message_of<ShapeError>([&] { run(8); }) == "got 8 at 0");
  run(2);
  CHECK(counted.at(0) == 4);
  CHECK(message_of<ShapeError>([&] { run(-1); }) == "got -1 at 0");
  run(0);
  cuda::fill(0, DType::i32, 4, 9, ids.address<std::int32_t>());
  graph->launch();
  cuda::Readback number(0, counted.address<std::int32_t>(), 4);
  CHECK(message_of<ShapeError>([&] { number.wait(); }) == "got 9 at 0");
}

TEST_CASE("numbers of any count arrive in the order of the kernels") {
  for (const Index count : {0, 1, 127, 128, 129, 700}) {
    CAPTURE(count);
    const Tensor to = Tensor::zeros({std::max<Index>(count, 1)}, DType::f64, Device::cuda());
    std::vector<std::uint64_t> sent;
    for (Index i = 0; i < count; ++i) sent.push_back(std::uint64_t{1} << 60 | static_cast<std::uint64_t>(i));
    cuda::set_numbers(0, reinterpret_cast<std::uint64_t*>(on_device(to)), sent.data(), count);
    std::vector<std::uint64_t> here(sent.size());
    cuda::download(0, here.data(), on_device(to), here.size() * 8);
    CHECK(here == sent);
  }
}
