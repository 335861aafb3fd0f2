#include <tapeformer/tests/emulator/hopper_source.h>
#include <tapeformer/tests/reference/support.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

using namespace tapeformer;
using emulator::Fault;
using emulator::launch;
using namespace tapeformer::hopper_tests;

namespace {

std::string hopper_fault_of(unsigned threads, const std::function<void()>& kernel) {
  return message_of<Fault>([&] { launch("kernel", 1, threads, kSharedBytes, kernel); });
}

}  // namespace

TEST_CASE("a read before the wait for a box finds NaN, and waiting for a wrong number of bytes never ends") {
  const Source source(64, 64);
  const auto loads = [&](int expected, bool waits) {
    return hopper_fault_of(32, [&, expected, waits] {
      make_barrier(1);
      if (threadIdx.x == 0) {
        arrive_expecting(barrier(), expected);
        load_box(tile(), &source.map, barrier(), 0, 0, 0, 0);
      }
      __syncwarp();
      if (waits) wait(barrier(), 0);
      BFloat16 got;
      std::memcpy(&got, tile(), 2);
      const float x = static_cast<float>(got);
      if (waits != (x == x)) throw std::runtime_error("the box is there, or not");
    });
  };
  CHECK(loads(Source::kBoxBytes, true) == "nothing was thrown");
  CHECK(has(loads(Source::kBoxBytes, false), "a block returned before its loads were waited for"));
  CHECK(has(loads(Source::kBoxBytes + 128, true), "threads 0-31 at a phase ("));
  CHECK(has(loads(Source::kBoxBytes - 128, true), "more bytes arrived at a barrier than a phase expects"));
}

TEST_CASE("phases end when all have arrived, and parities tell them apart") {
  std::vector<int> order;
  launch("kernel", 1, 64, kSharedBytes, [&] {
    make_barrier(2);
    wait(barrier(), 1);  // the one before the first
    __syncthreads();
    if (threadIdx.x == 63) wait(barrier(), 0), order.push_back(2);
    if (threadIdx.x == 0) order.push_back(0), arrive(barrier());
    if (threadIdx.x == 32) order.push_back(1), arrive(barrier());
  });
  CHECK(order.back() == 2);
  CHECK(order.size() == 3);
  CHECK(has(hopper_fault_of(32, [] { make_barrier(1), wait(barrier(), 0); }), "threads 0-31 at a phase ("));
  CHECK(has(hopper_fault_of(32, [] { arrive(barrier()); }), "a barrier was not made"));
  CHECK(has(hopper_fault_of(1, [] { init_barrier(barrier(), 1), arrive(barrier()); }),
            "made and not published"));
}

TEST_CASE("named barriers: some only arrive") {
  std::vector<unsigned> order;
  launch("kernel", 1, 96, kSharedBytes, [&] {
    const unsigned warp = threadIdx.x / 32;
    if (warp == 0) meet_at(1, 96);
    if (threadIdx.x % 32 == 0) order.push_back(warp);
    if (warp > 0) arrive_at(1, 96);
  });
  CHECK(has(hopper_fault_of(96, [] { threadIdx.x < 32 || threadIdx.x % 2 == 0 ? arrive_at(1, 64) : void(); }),
            "arrives at a named barrier as a whole, and counts as 32 threads; got 16"));
  CHECK(order.back() == 0);
  CHECK(order.size() == 3);
  CHECK(has(hopper_fault_of(64, [] { meet_at(1, 96); }), "threads 0-63 at a named barrier ("));
  CHECK(has(hopper_fault_of(64, [] { meet_at(1, threadIdx.x < 32 ? 64 : 32); }), "expect different numbers"));
  CHECK(has(hopper_fault_of(32, [] { meet_at(0, 32); }), "named barriers are 1 to 15"));
  CHECK(has(hopper_fault_of(32, [] { meet_at(1, 33); }), "whole warps meet"));
}

TEST_CASE("products that are touched before they are done, or begin without a fence") {
  const auto fault = [](const std::function<void(float(&)[32], unsigned(&)[4])>& between) {
    return hopper_fault_of(128, [between] {
      float d[32] = {};
      unsigned a[4] = {};
      wgmma_fence();
      wgmma(d, a, matrix_at(tile(), 1024, 1024), true);
      wgmma_commit();
      between(d, a);
      wgmma_wait<0>();
    });
  };
  CHECK(fault([](auto&, auto&) {}) == "nothing was thrown");
  CHECK(fault([](auto& d, auto&) {
          if (!std::isnan(d[0])) throw std::runtime_error("there before the wait");
        }) == "nothing was thrown");
  CHECK(has(fault([](auto& d, auto&) { d[5] += 1, d[7] = 0; }), "an accumulator was changed before"));
  const auto again = [&](int place) {
    return fault([place](auto& d, auto& a) {
      wgmma_wait<0>();
      if (place == 0) d[3] = 1;
      wgmma_fence();
      if (place == 1) d[3] = 1;
      if (place == 2) a[1] = 1;
      wgmma(d, a, matrix_at(tile(), 1024, 1024), true);
      wgmma_commit();
    });
  };
  CHECK(again(0) == "nothing was thrown");
  CHECK(has(again(1), "changed behind the fence"));
  CHECK(has(again(2), "changed behind the fence"));
  CHECK(has(fault([](auto&, auto& a) { a[3] = 1; }), "a product's registers were changed before"));
  CHECK(has(fault([](auto& d, auto& a) { wgmma_wait<0>(), wgmma(d, a, matrix_at(tile(), 16, 1024), true); }),
            "behind a fence that follows the last wait"));
  CHECK(has(fault([](auto& d, auto& a) {
              if (threadIdx.x < 64) wgmma(d, a, matrix_at(tile(), 16, 1024), true), wgmma_commit();
            }),
            "began different products"));
  CHECK(has(fault([](auto& d, auto& a) { wgmma(d, a, 0, true), wgmma_commit(); }), "swizzled by 128 bytes"));
  CHECK(has(hopper_fault_of(128,
                            [] {
                              float d[32];
                              wgmma_fence();
                              wgmma(d, matrix_at(tile(), 16, 1024), matrix_at(tile(), 16, 1024), false);
                            }),
            "returned before its products were waited for"));
}

TEST_CASE("no more registers are taken than there are") {
  CHECK(hopper_fault_of(384, [] { threadIdx.x < 128 ? give_up_registers<40>() : take_registers<232>(); }) ==
        "nothing was thrown");
  CHECK(hopper_fault_of(384, [] { threadIdx.x < 256 ? take_registers<232>() : give_up_registers<40>(); }) ==
        "nothing was thrown");  // threads that take more wait for the others
  CHECK(has(hopper_fault_of(384, [] { threadIdx.x < 128 ? give_up_registers<40>() : take_registers<240>(); }),
            "at setmaxnreg ("));
  CHECK(has(hopper_fault_of(384, [] { give_up_registers<36>(); }), "a multiple of 8"));
  CHECK(has(hopper_fault_of(384, [] { give_up_registers<176>(); }), "taken, or given up"));
}

TEST_CASE("tiles begin where the swizzle does, and tensor maps at multiples of 64 bytes") {
  const Source source(64, 64);
  struct alignas(64) Maps {
    char bytes[sizeof(CUtensorMap) + 64];
  } maps{};
  const auto load = [&](int offset, bool moved) {
    auto* const map = reinterpret_cast<CUtensorMap*>(maps.bytes + (moved ? 16 : 0));
    std::memcpy(static_cast<void*>(map), &source.map, sizeof(CUtensorMap));
    return hopper_fault_of(1, [map, offset] {
      make_barrier(1);
      arrive_expecting(barrier(), Source::kBoxBytes);
      load_box(tile() + offset, map, barrier(), 0, 0, 0, 0);
      wait(barrier(), 0);
    });
  };
  CHECK(load(1024, false) == "nothing was thrown");
  CHECK(has(load(128, false), "a box that is swizzled lies at a multiple of 1024 bytes"));
  CHECK(has(load(0, true), "a tensor map lies at a multiple of 64 bytes"));
  for (const auto& [offset, stride] : {std::pair{128, 1024}, {0, 1024 + 128}}) {
    CHECK(has(hopper_fault_of(128,
                              [offset = offset, stride = stride] {
                                float d[32] = {};
                                wgmma_fence();
                                wgmma(d, matrix_at(tile(), 16, 1024), matrix_at(tile() + offset, 16, stride),
                                      true);
                              }),
              "begin at multiples of 1024 bytes"));
  }
}

TEST_CASE("a store reaches global memory only after the block has ended") {
  const Source source(64, 64);
  Source copy(64, 64);
  for (BFloat16& x : copy.data) x = BFloat16(0.0f);
  float within = -1;
  launch("kernel", 1, 1, kSharedBytes, [&] {
    make_barrier(1);
    load_tile(source.map);
    wait(barrier(), 0);
    store_box(&copy.map, tile(), 0, 0, 0, 0);
    finish_stores();
    within = copy.at(0, 1, 0, 6);
  });
  CHECK(within == 0);
  CHECK(copy.at(0, 1, 0, 6) == source.at(0, 1, 0, 6));
  CHECK(source.at(0, 1, 0, 6) != 0);
}
