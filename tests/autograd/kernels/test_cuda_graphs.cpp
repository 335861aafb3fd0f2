#include <doctest/doctest.h>
#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/cuda/graph.h>
#include <tapeformer/autograd/cuda/readback.h>
#include <tapeformer/autograd/kernels/ids.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/autograd/kernels/full_device.h>
#include <tapeformer/tests/reference/support.h>

#include <functional>
#include <memory>
#include <optional>
#include <thread>

using namespace tapeformer;

namespace {

constexpr Index kCount = 1000;
constexpr std::size_t kBytes = kCount * sizeof(double);

Tensor numbers(double value) { return Tensor::full({kCount}, value, DType::f64, Device::cuda()); }
double* on_device(const Tensor& x) { return x.address<double>(); }
void fill(void* to, double value) { cuda::fill(0, DType::f64, kCount, value, to); }

std::unique_ptr<cuda::Graph> captured(const std::function<void()>& work, std::int64_t expected_bytes = 0) {
  cuda::Capture capture(0, expected_bytes);
  work();
  return capture.finish();
}

}  // namespace

TEST_SUITE("autograd/kernels/cuda_graphs") {
  TEST_CASE("what is captured does not run, and a graph runs as often as it is launched") {
    if (!has_gpu()) return;
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
    fill(on_device(x), 7);  // behind the first launch, before the second
    graph->launch();
    CHECK(y.at(0) == 7);
    CHECK(z.at(0) == 1);
  }

  TEST_CASE("a capture that is not finished has not happened, and the device goes on") {
    if (!has_gpu()) return;
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

  TEST_CASE("what the device refuses in a capture cannot be captured; elsewhere it is the device's error") {
    if (!has_gpu()) return;
    const Tensor x = numbers(1);
    const auto refused = [&] { cuda::copy(0, nullptr, on_device(x), kBytes); };
    CHECK_THROWS_AS(captured(refused), cuda::NotCapturable);
    CHECK_FALSE(cuda::is_capturing());
    CHECK_THROWS_AS(refused(), DeviceError);
    CHECK(x.at(5) == 1);
  }

  TEST_CASE("memory of a capture is used again within it, and by the next graph") {
    if (!has_gpu()) return;
    const std::int64_t before = cuda::memory_statistics(0).in_use_bytes;
    {
      const Tensor y = numbers(0);
      const void *first = nullptr, *second = nullptr, *other = nullptr;
      const auto work = [&](const void*& at, double value) {
        void* const block = cuda::allocate(0, kBytes);
        at = block;
        CHECK(cuda::is_graph_memory(0, static_cast<char*>(block) + kBytes - 1));
        fill(block, value);
        cuda::copy(0, on_device(y), block, kBytes);
        cuda::release(0, block, kBytes);
      };
      const auto graph = captured(
          [&] {
            work(first, 1);
            work(second, 2);
          },
          kBytes);
      CHECK(first == second);
      const std::int64_t with_one = cuda::memory_statistics(0).in_use_bytes;
      const auto next = captured([&] { work(other, 3); });
      CHECK(other == first);
      CHECK(cuda::memory_statistics(0).in_use_bytes == with_one);
      CHECK(with_one >= before + 2 * static_cast<std::int64_t>(kBytes));
      for (const double expected : {2.0, 3.0, 2.0}) {
        (expected == 2 ? graph : next)->launch();
        CHECK(y.at(1) == expected);
      }
      CHECK_FALSE(cuda::is_graph_memory(0, on_device(y)));
    }
    CHECK(cuda::memory_statistics(0).in_use_bytes == before);
  }

  TEST_CASE("blocks of all sizes in any order do not overlap, and end as one") {
    if (!has_gpu()) return;
    Generator random(4);
    struct Block {
      char* from;
      std::size_t bytes;
    };
    const auto graph = captured([&] {
      const std::int64_t in_use = cuda::memory_statistics(0).in_use_bytes;
      std::vector<Block> blocks;
      std::int64_t grown = 0;
      for (int round = 0; round < 400; ++round) {
        if (!blocks.empty() && random.below(5) < 2) {
          const auto at = static_cast<std::size_t>(random.below(static_cast<Index>(blocks.size())));
          cuda::release(0, blocks[at].from, blocks[at].bytes);
          blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(at));
          continue;
        }
        const auto bytes = static_cast<std::size_t>(random.below(round % 10 == 0 ? 100'000 : 3000));
        auto* const from = static_cast<char*>(cuda::allocate(0, bytes));
        CHECK(reinterpret_cast<std::uintptr_t>(from) % 256 == 0);
        bool apart = true;
        for (const Block& b : blocks) apart = apart && (from + bytes <= b.from || b.from + b.bytes <= from);
        CHECK(apart);
        blocks.push_back({from, bytes});
        grown = cuda::memory_statistics(0).in_use_bytes - in_use;
      }
      for (const Block& b : blocks) cuda::release(0, b.from, b.bytes);
      // All of it, in one piece.
      void* const all = cuda::allocate(0, static_cast<std::size_t>(grown));
      if (grown <= 2 << 20) CHECK(cuda::memory_statistics(0).in_use_bytes == in_use + grown);
      cuda::release(0, all, static_cast<std::size_t>(grown));
    });
    CHECK(graph->nodes() == 0);
    graph->launch();
  }

  TEST_CASE("holes of a few percent cost a capture no more memory") {
    if (!has_gpu()) return;
    const std::int64_t before = cuda::memory_statistics(0).in_use_bytes;
    constexpr std::size_t kHole = std::size_t{3} << 20, kLarge = std::size_t{60} << 20;
    const auto graph = captured(
        [] {
          void* const hole = cuda::allocate(0, kHole);
          void* const behind = cuda::allocate(0, 512);
          cuda::release(0, hole, kHole);
          cuda::release(0, cuda::allocate(0, kLarge), kLarge);  // it does not fit before what is behind
          cuda::release(0, behind, 512);
        },
        kLarge + 512);
    CHECK(cuda::memory_statistics(0).in_use_bytes - before < kLarge + kLarge / 10);
  }

  TEST_CASE("what outlives its capture is nobody else's") {
    if (!has_gpu()) return;
    std::optional<Tensor> kept;
    std::unique_ptr<cuda::Graph> graph;
    {
      cuda::Capture capture(0, 1 << 20);
      CHECK(capture.kept_bytes() == 0);
      kept = numbers(4);
      CHECK(capture.kept_bytes() == 8192);
      graph = capture.finish();
    }
    graph->launch();
    const auto other = captured([&] { numbers(5); });
    other->launch();
    CHECK(kept->at(3) == 4);
    CHECK_FALSE(cuda::is_graph_memory(0, on_device(*kept)));
    graph.reset();
    CHECK(kept->at(3) == 4);
    kept.reset();
  }

  TEST_CASE("memory that is freed during a capture is freed behind it") {
    if (!has_gpu()) return;
    auto x = std::make_optional(numbers(1));
    const Tensor y = numbers(0);
    cuda::copy(0, on_device(y), on_device(*x), kBytes);
    const std::int64_t before = cuda::memory_statistics(0).in_use_bytes;
    CHECK(captured([&] { x.reset(); })->nodes() == 0);
    CHECK(cuda::memory_statistics(0).in_use_bytes == before - static_cast<std::int64_t>(kBytes));
    CHECK(y.at(0) == 1);
    constexpr std::size_t kMost = std::size_t{3} << 30;  // an emulated device has no room for two
    void* const first = cuda::allocate(0, kMost);
    {
      const cuda::Capture capture(0, 0);
      cuda::release(0, first, kMost);
    }
    cuda::release(0, cuda::allocate(0, kMost), kMost);
  }

  TEST_CASE("a capture that came to nothing keeps no memory") {
    if (!has_gpu()) return;
    const std::int64_t before = cuda::memory_statistics(0).in_use_bytes;
    constexpr std::int64_t kExpected = 64 << 20;
    {
      const cuda::Capture capture(0, kExpected);
      numbers(1);
      CHECK(cuda::memory_statistics(0).in_use_bytes >= before + kExpected);
    }
    CHECK(cuda::memory_statistics(0).in_use_bytes == before);
    const auto graph = captured([] { numbers(1); });
    const std::int64_t with_graph = cuda::memory_statistics(0).in_use_bytes;
    CHECK(with_graph > before);
    { const cuda::Capture capture(0, 0); }
    CHECK(cuda::memory_statistics(0).in_use_bytes == with_graph);  // it still runs there
    graph->launch();
  }

  TEST_CASE("a capture for which there is not the memory is refused, and nothing is captured") {
    if (!has_gpu()) return;
    const Tensor x = numbers(1);
    const std::string message =
        message_of<cuda::NotCapturable>([] { const cuda::Capture capture(0, std::int64_t{1} << 50); });
    CHECK(message.find("[memory] cuda:0 has no") == 0);
    CHECK_FALSE(cuda::is_capturing());
    fill(on_device(x), 2);
    CHECK(x.at(0) == 2);
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
      other->launch();  // both may be running yet
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

  TEST_CASE("what outlives its capture stays when the graph gives way") {
    if (!FullDevice::is_possible()) return;
    const FullDevice full(8);
    std::optional<Tensor> kept;
    const auto graph = captured([&] {
      FullDevice::block(5);
      kept = numbers(9);
    });
    graph->launch();
    CHECK(message_of<DeviceError>([] { FullDevice::block(6); }).find("[memory] cuda:0 has no ") == 0);
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
    CHECK(message_of<cuda::NotCapturable>([&] { const cuda::Capture capture(0, more); }) != "");
    CHECK(message_of<cuda::NotCapturable>([&] {
            captured([] { FullDevice::block(10); });
          }).find("memory that the device has not got at once") != std::string::npos);
    std::string message;
    std::thread([&] { message = message_of<DeviceError>([] { FullDevice::block(6); }); }).join();
    CHECK(message.find("[memory] cuda:0 has no ") == 0);
    REQUIRE_FALSE(graph->is_evicted());
    graph->launch();
    CHECK(y.at(1) == 4);
  }

  TEST_CASE("what would wait, look or send is refused by name, and leaves the capture whole") {
    if (!has_gpu()) return;
    const Tensor x = numbers(1), y = numbers(0);
    double here = 9;
    const std::vector<std::pair<std::string, std::function<void()>>> refused = {
        {"waiting for the device", [] { cuda::synchronize(0); }},
        {"a look at the device's memory", [&] { cuda::download(0, &here, on_device(x), 8); }},
        {"a look at the device's memory", [&] { cuda::Readback(0, on_device(x), 8); }},
        {"the host's look at a tensor", [&] { x.data<double>(); }},
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

  TEST_CASE("another thread is told that the device is captured") {
    if (!has_gpu()) return;
    const Tensor x = numbers(1);
    std::string message;
    {
      const cuda::Capture capture(0, 0);
      std::thread([&] { message = message_of<DeviceError>([&] { fill(on_device(x), 2); }); }).join();
    }
    CHECK(message == "[cuda] another thread captures on cuda:0; try it when that has ended");
    CHECK(x.at(0) == 1);
  }

  TEST_CASE("each launch looks at its input anew, and says what is wrong with it in words of the capture") {
    if (!has_gpu()) return;
    const Tensor ids = Tensor::full({4}, 3, DType::i32, Device::cuda()),
                 counted = Tensor::zeros({1}, DType::i32, Device::cuda());
    const auto graph = captured([&] {
      cuda::DeviceErrorSlot* const error =
          cuda::watch_for_device_error(0, [](const cuda::DeviceErrorSlot& found) {
            return "got " + std::to_string(found.value) + " at " + std::to_string(found.position);
          });
      kernels::check_ids(kernels::Cuda{0}, 4, ids.address<std::int32_t>(), {0, 5},
                         counted.address<std::int32_t>(), error);
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

  TEST_CASE("numbers arrive in the order of the kernels, however many") {
    if (!has_gpu()) return;
    for (const Index count : {0, 1, 127, 128, 129, 700}) {
      CAPTURE(count);
      const Tensor to = Tensor::zeros({std::max<Index>(count, 1)}, DType::f64, Device::cuda());
      std::vector<std::uint64_t> sent;
      for (Index i = 0; i < count; ++i)
        sent.push_back(std::uint64_t{1} << 60 | static_cast<std::uint64_t>(i));
      cuda::set_numbers(0, reinterpret_cast<std::uint64_t*>(on_device(to)), sent.data(), count);
      std::vector<std::uint64_t> here(sent.size());
      cuda::download(0, here.data(), on_device(to), here.size() * 8);
      CHECK(here == sent);
    }
  }

  TEST_CASE("the most memory of late is counted from what was in use when it was last asked for") {
    if (!has_gpu()) return;
    const Tensor before = numbers(1);
    cuda::exchange_recent_peak(0);
    {
      const Tensor a = numbers(1);
      const Tensor b = numbers(1);
    }
    CHECK(cuda::exchange_recent_peak(0) == 2 * static_cast<std::int64_t>(kBytes));
    CHECK(cuda::exchange_recent_peak(0) == 0);
  }
}
