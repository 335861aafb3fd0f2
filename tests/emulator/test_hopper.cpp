#include <tapeformer/tests/emulator/hopper_source.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

#include <vector>

using namespace tapeformer;
using emulator::Fault;
using emulator::launch;
using namespace tapeformer::hopper_tests;

namespace {

std::string hopper_fault_of(unsigned threads, const std::function<void()>& kernel) {
  return message_of<Fault>([&] { launch("kernel", 1, threads, kSharedBytes, kernel); });
}
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

/// A box in each of the first `boxes` places, side by side in columns; row `row` of `head` and `batch` first.
void load_boxes(const Source& source, int boxes, int column, int row, int head, int batch) {
  if (threadIdx.x == 0) {
    arrive_expecting(barrier(), boxes * Source::kBoxBytes);
    for (int i = 0; i < boxes; ++i)
      load_box(tile() + i * Source::kBoxBytes, &source.map, barrier(), column + 64 * i, row, head, batch);
  }
}

int row_of(int i) {
  return static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + i % 4 / 2 * 8;
}
int column_of(int i) { return i / 4 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2; }

}  // namespace

TEST_CASE("boxes are swizzled, end where the tensor does, and come back") {
  const Source source(70, 72);
  Source copy(70, 72);
  for (BFloat16& x : copy.data) x = BFloat16(0.0f);
  int wrong = 0;
  launch("kernel", 1, 32, kSharedBytes, [&] {
    make_barrier(1);
    load_boxes(source, 2, 0, 40, 2, 0);
    wait(barrier(), 0);
    for (int row = 0; row < 64; ++row) {
      for (int column = static_cast<int>(threadIdx.x); column < 128; column += 32) {
        const char* at = tile() + column / 64 * Source::kBoxBytes + row * 128 +
                         ((column % 64 / 8 ^ row % 8) * 16 + column % 8 * 2);
        BFloat16 got;
        std::memcpy(&got, at, 2);
        wrong += static_cast<float>(got) != source.at(0, 40 + row, 2, column);
      }
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int box = 0; box < 2; ++box)
      store_box(&copy.map, tile() + box * Source::kBoxBytes, 64 * box, 40, 2, 0);
    finish_stores();
  });
  CHECK(wrong == 0);
  for (int b = 0; b < 2; ++b) {
    for (int row = 0; row < 70; ++row) {
      for (int head = 0; head < 3; ++head) {
        for (int column = 0; column < 72; ++column)
          wrong += copy.at(b, row, head, column) !=
                   (b == 0 && row >= 40 && head == 2 ? source.at(b, row, head, column) : 0);
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("products of matrices along k in shared memory") {
  const Source source(256, 64);
  int wrong = 0;
  launch("kernel", 1, 128, kSharedBytes, [&] {
    make_barrier(1);
    if (threadIdx.x == 0) {
      arrive_expecting(barrier(), 3 * Source::kBoxBytes);
      for (int i = 0; i < 3; ++i)
        load_box(tile() + i * Source::kBoxBytes, &source.map, barrier(), 0, 64 * i, 1, 1);
    }
    wait(barrier(), 0);
    float d[64];
    for (int i = 0; i < 64; ++i) d[i] = static_cast<float>(i);
    for (const bool adds : {true, false}) {
      wgmma_fence();
      for (int k = 0; k < 4; ++k)
        wgmma(d, matrix_at(tile(), 16, 1024) + static_cast<unsigned>(2 * k),
              matrix_at(tile() + Source::kBoxBytes + 32 * k, 16, 1024), adds || k > 0);
      wgmma_commit();
      wgmma_wait<0>();
      for (int i = 0; i < 64; ++i) {
        float expected = adds ? static_cast<float>(i) : 0;
        for (int k = 0; k < 64; ++k)
          expected += source.at(1, row_of(i), 1, k) * source.at(1, 64 + column_of(i), 1, k);
        wrong += d[i] != expected;
      }
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("products of registers with a matrix across k") {
  const Source source(128, 128);
  int wrong = 0;
  launch("kernel", 1, 128, kSharedBytes, [&] {
    make_barrier(1);
    load_boxes(source, 2, 0, 3, 0, 0);
    wait(barrier(), 0);
    const auto a_at = [](int row, int k) { return number(row * 16 + k); };
    const int row = row_of(0), k = static_cast<int>(threadIdx.x) % 4 * 2;
    unsigned a[4];
    for (int i = 0; i < 4; ++i)
      a[i] = pack_bf16(a_at(row + i % 2 * 8, k + i / 2 * 8), a_at(row + i % 2 * 8, k + 1 + i / 2 * 8));
    float d[64] = {}, half[32] = {};
    wgmma_fence();
    wgmma(d, a, matrix_at(tile() + 32 * 128, Source::kBoxBytes, 1024), true);
    wgmma_commit();
    wgmma(half, a, matrix_at(tile() + 16 * 128, Source::kBoxBytes, 1024), true);
    wgmma_commit();
    wgmma_wait<1>();
    wrong += half[0] == half[0];  // not there yet
    for (int i = 0; i < 64; ++i) {
      float expected = 0;
      for (int j = 0; j < 16; ++j) expected += a_at(row_of(i), j) * source.at(0, 3 + 32 + j, 0, column_of(i));
      wrong += d[i] != expected;
    }
    wgmma_wait<0>();
    for (int i = 0; i < 32; ++i) {
      float expected = 0;
      for (int j = 0; j < 16; ++j) expected += a_at(row_of(i), j) * source.at(0, 3 + 16 + j, 0, column_of(i));
      wrong += half[i] != expected;
    }
  });
  CHECK(wrong == 0);
}

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
    load_boxes(source, 1, 0, 0, 1, 0);
    wait(barrier(), 0);
    store_box(&copy.map, tile(), 0, 0, 1, 0);
    finish_stores();
    within = copy.at(0, 1, 1, 5);
  });
  CHECK(within == 0);
  CHECK(copy.at(0, 1, 1, 5) == source.at(0, 1, 1, 5));
  CHECK(source.at(0, 1, 1, 5) != 0);
}
