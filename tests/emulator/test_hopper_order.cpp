#include <tapeformer/tests/emulator/hopper_source.h>
#include <tapeformer/tests/emulator/in_order.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;
using emulator::Fault;
using emulator::launch;
using namespace tapeformer::hopper_tests;

namespace {

/// The message of a kernel of two warpgroups, the same faults in every order of its threads.
void check_fault(const char* first, const char* second,
                 const std::function<void(const CUtensorMap&)>& kernel) {
  const Source source(64, 64);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const InOrder order(seed);
    const std::string text =
        message_of<Fault>([&] { launch("kernel", 1, 256, kSharedBytes, [&] { kernel(source.map); }); });
    INFO("seed " << seed << ": " << text);
    if (first == nullptr) {
      CHECK(text == "nothing was thrown");
      continue;
    }
    // Both places are named, in the order in which the threads came there.
    if (seed == 0) CHECK(text.find("[kernel] " + std::string(first) + " (") == 0);
    if (seed == 0) CHECK(text.find(std::string(second) + " (") != std::string::npos);
    CHECK(text.find("and nothing orders them; got dynamic shared memory + ") != std::string::npos);
  }
}
void check_right(const std::function<void(const CUtensorMap&)>& kernel) {
  check_fault(nullptr, nullptr, kernel);
}

/// Threads 128 to 255 multiply what thread 0 loads, twice through one tile; `release` hands it back.
template <class Release>
auto twice_through_a_tile(int releases, Release&& release) {
  return [=](const CUtensorMap& map) {
    make_barriers(1, releases);
    if (threadIdx.x == 0) {
      for (unsigned i = 0; i < 2; ++i) {
        wait(other_barrier(), i ^ 1u);
        load_tile(map);
      }
    }
    if (threadIdx.x < 128) return;
    float d[32];
    for (unsigned i = 0; i < 2; ++i) {
      wait(barrier(), i);
      multiply(d);
      release(threadIdx.x % 32);
    }
  };
}

}  // namespace

TEST_CASE("a tile is released after the wait for the products that read it") {
  check_right(twice_through_a_tile(4, [](unsigned lane) {
    wgmma_wait<0>();
    if (lane == 0) arrive(other_barrier());
  }));
  check_fault("a load", "what a product", twice_through_a_tile(4, [](unsigned lane) {
                if (lane == 0) arrive(other_barrier());
                wgmma_wait<0>();
              }));
  check_fault("a load", "what a product", twice_through_a_tile(4, [](unsigned lane) {
                wgmma_wait<1>();  // of one group: for nothing
                if (lane == 0) arrive(other_barrier());
                wgmma_wait<0>();
              }));
}

TEST_CASE("a group further back is done when fewer are pending") {
  check_right(twice_through_a_tile(4, [](unsigned lane) {
    float d[32];
    wgmma_fence();
    wgmma(d, matrix_at(tile() + 2 * Source::kBoxBytes, 16, 1024),
          matrix_at(tile() + 3 * Source::kBoxBytes, 16, 1024), false);
    wgmma_commit();
    wgmma_wait<1>();
    if (lane == 0) arrive(other_barrier());
    wgmma_wait<0>();
  }));
}

TEST_CASE("each warp of the group waits for its own part of a product alone") {
  const auto one_releases = [](unsigned) {
    wgmma_wait<0>();
    if (threadIdx.x == 128) arrive(other_barrier());
  };
  check_fault("a load", "what a product", twice_through_a_tile(1, one_releases));
  check_right(twice_through_a_tile(1, [](unsigned) {
    wgmma_wait<0>();
    meet_at(1, 128);
    if (threadIdx.x == 128) arrive(other_barrier());
  }));
}

TEST_CASE("a warp that multiplies a tile has waited for it, or met one that has") {
  const auto with = [](const std::function<void()>& before) {
    return [before](const CUtensorMap& map) {
      make_barrier(1);
      if (threadIdx.x == 0) load_tile(map);
      if (threadIdx.x < 128) return wait(barrier(), 0);
      float d[32];
      before();
      multiply(d);
      wgmma_wait<0>();
    };
  };
  check_right(with([] { wait(barrier(), 0); }));
  check_fault("a product", "what a load", with([] {
                if (threadIdx.x % 32 == 0) wait(barrier(), 0);
              }));
  check_right(with([] {
    if (threadIdx.x % 32 == 0) wait(barrier(), 0);
    __syncwarp();
  }));
  check_right(with([] {
    if (threadIdx.x == 128) wait(barrier(), 0);
    meet_at(1, 128);
  }));
}

TEST_CASE("a tile is stored whole before it is loaded again, and loaded once at a time") {
  const auto with = [](const std::function<void(CUtensorMap&)>& between) {
    return [between](const CUtensorMap& map) {
      make_barrier(1);
      if (threadIdx.x != 0) return;
      CUtensorMap copy = map;
      between(copy);
      load_tile(map);
      wait(barrier(), 0);
      finish_stores();
    };
  };
  check_right(with([](CUtensorMap& copy) { store_box(&copy, tile(), 0, 0, 0, 0), finish_stores(); }));
  check_fault("a load", "what a store",
              with([](CUtensorMap& copy) { store_box(&copy, tile(), 0, 0, 0, 0); }));
  check_right(with([](CUtensorMap& copy) { store_box(&copy, tile() + Source::kBoxBytes, 0, 0, 0, 0); }));
  check_fault("a load", "what a load", [](const CUtensorMap& map) {
    make_barriers(1, 1);
    if (threadIdx.x != 0) return;
    load_tile(map);
    arrive_expecting(other_barrier(), Source::kBoxBytes);
    load_box(tile(), &map, other_barrier(), 0, 0, 0, 0);
  });
  check_fault("a store", "what a load", [](const CUtensorMap& map) {
    make_barrier(1);
    if (threadIdx.x != 0) return;
    load_tile(map);
    store_box(&map, tile(), 0, 0, 0, 0);
  });
}

TEST_CASE("a thread that uses a barrier has met the one that initialised it") {
  const auto text_with = [](bool meets) {
    return message_of<Fault>([meets] {
      launch("kernel", 1, 64, kSharedBytes, [meets] {
        if (threadIdx.x == 0) init_barrier(barrier(), 64), publish_barriers();
        if (meets) __syncthreads();
        arrive(barrier());
      });
    });
  };
  const InOrder order(0);  // in others a thread may arrive before the barrier exists
  CHECK(text_with(true) == "nothing was thrown");
  CHECK(
      text_with(false).find("a thread comes to a barrier that was made and published, and nothing orders") !=
      std::string::npos);
}
