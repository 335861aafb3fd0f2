#include <doctest/doctest.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/tests/autograd/cuda/runtime_case.h>

#include <memory>
#include <optional>
#include <vector>

using namespace tapeformer;

TEST_CASE("memory of a capture is reused within it, and by the next graph") {
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

TEST_CASE("blocks of all sizes, allocated and released in any order, do not overlap, and join in the end") {
  Generator random(test_seed(4));
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

TEST_CASE("a block that does not fit a hole of a few percent costs little more memory") {
  const std::int64_t before = cuda::memory_statistics(0).in_use_bytes;
  constexpr std::size_t kHole = std::size_t{3} << 20, kLarge = std::size_t{60} << 20;
  const auto graph = captured(
      [] {
        void* const hole = cuda::allocate(0, kHole);
        void* const behind = cuda::allocate(0, 512);
        cuda::release(0, hole, kHole);
        cuda::release(0, cuda::allocate(0, kLarge), kLarge);  // it does not fit before the next block
        cuda::release(0, behind, 512);
      },
      kLarge + 512);
  CHECK(cuda::memory_statistics(0).in_use_bytes - before < kLarge + kLarge / 10);
}

TEST_CASE("memory that outlives its capture is not reused by other graphs") {
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

TEST_CASE("a capture keeps what it allocates, however much of another's it releases") {
  std::optional<Tensor> kept;
  const auto graph = captured([&] { kept = numbers(4); });
  const cuda::Capture capture(0, 0);
  kept.reset();
  CHECK(capture.kept_bytes() == 0);
  const Tensor other = numbers(5);
  CHECK(capture.kept_bytes() == 8192);
}

TEST_CASE("the last graph leaves its memory to a capture during which it ends") {
  const Tensor y = numbers(0);
  auto last = captured([] { numbers(1); });
  const std::int64_t with_one = cuda::memory_statistics(0).in_use_bytes;
  const auto next = captured([&] {
    const void* const used = on_device(numbers(2));
    last.reset();
    CHECK(cuda::memory_statistics(0).in_use_bytes == with_one);
    const Tensor x = numbers(3);
    CHECK(on_device(x) == used);
    cuda::copy(0, on_device(y), on_device(x), kBytes);
  });
  next->launch();
  CHECK(y.at(7) == 3);
}

TEST_CASE("memory that is released during a capture is freed after it") {
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

TEST_CASE("a capture that is discarded keeps no memory") {
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
