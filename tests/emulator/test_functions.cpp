#include <cuda_emulator.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

using namespace tapeformer;

namespace {

/// The result and the value before, of one atomic operation on `start`.
template <class T, class F>
void check_atomic(T start, F&& operation, T expected) {
  T value = start;
  CHECK(operation(&value) == start);
  CHECK(value == expected);
}

}  // namespace

TEST_SUITE("emulator/functions") {
  TEST_CASE("atomics return what was there before") {
    check_atomic<int>(
        5, [](int* x) { return atomicAdd(x, -7); }, -2);
    check_atomic<unsigned>(
        5, [](unsigned* x) { return atomicAdd(x, 0xffffffffu); }, 4);
    using Wide = unsigned long long;
    check_atomic<Wide>(
        1ull << 40, [](Wide* x) { return atomicAdd(x, 1); }, (1ull << 40) + 1);
    check_atomic<int>(
        5, [](int* x) { return atomicMin(x, -7); }, -7);
    check_atomic<int>(
        5, [](int* x) { return atomicMin(x, 7); }, 5);
    check_atomic<int>(
        5, [](int* x) { return atomicMax(x, -7); }, 5);
    check_atomic<unsigned>(
        5, [](unsigned* x) { return atomicMax(x, 0xfffffff9u); }, 0xfffffff9u);
    check_atomic<int>(
        5, [](int* x) { return atomicExch(x, 9); }, 9);
    check_atomic<int>(
        5, [](int* x) { return atomicCAS(x, 5, 8); }, 8);
    check_atomic<int>(
        5, [](int* x) { return atomicCAS(x, 4, 8); }, 5);
  }

  TEST_CASE("atomics of many threads add up") {
    unsigned sum = 0, most = 0;
    emulator::launch("atomics", 4, 100, 0, [&] {
      atomicAdd(&sum, threadIdx.x);
      atomicMax(&most, 100 * blockIdx.x + threadIdx.x);
    });
    CHECK(sum == 4 * 4950);
    CHECK(most == 399);
  }

  TEST_CASE("integer functions, at their ends") {
    CHECK(__popc(0xf0f00001u) == 9);
    CHECK(__popcll(~0ull) == 64);
    CHECK(__ffs(0) == 0);
    CHECK(__ffs(8) == 4);
    CHECK(__ffsll(1ll << 40) == 41);
    CHECK(__clz(0) == 32);
    CHECK(__clz(1) == 31);
    CHECK(__clz(-1) == 0);
    CHECK(__clzll(0) == 64);
    CHECK(__clzll(1) == 63);
    CHECK(__umulhi(0xffffffffu, 0xffffffffu) == 0xfffffffeu);
    CHECK(__umulhi(0xcd9e8d57u, 3) == 2);
  }

  TEST_CASE("bits of floats and back") {
    CHECK(__float_as_int(-0.0f) == std::numeric_limits<int>::min());
    CHECK(__float_as_uint(1.0f) == 0x3f800000u);
    CHECK(__int_as_float(0x40000000) == 2.0f);
    CHECK(__uint_as_float(0xbf800000u) == -1.0f);
    CHECK(__double_as_longlong(1.0) == 0x3ff0000000000000ll);
    CHECK(__longlong_as_double(0x4000000000000000ll) == 2.0);
  }

  TEST_CASE("min and max of two types meet in their sum's; a number wins over NaN") {
    CHECK(::min(3, 2) == 2);
    CHECK(::max(-1, 1u) == 0xffffffffu);
    CHECK(::min(2, 1.5) == 1.5);
    CHECK(::max(1.5f, 2) == 2.0f);
    CHECK(::max(std::int64_t{1} << 40, 7) == std::int64_t{1} << 40);
    CHECK(::max(NAN, 1.0f) == 1.0f);
    CHECK(::min(1.0, double{NAN}) == 1.0);
    CHECK(::min(NAN, 1.0f) == 1.0f);
    static_assert(std::is_same<decltype(::min(1.0f, 2)), float>::value, "as CUDA's");
  }

  TEST_CASE("roots and products that are not fused") {
    CHECK(rsqrtf(4) == 0.5f);
    CHECK(rsqrt(0.25) == 2.0);
    CHECK(rsqrt(16.0f) == 0.25f);
    volatile float above_one = 1 + std::numeric_limits<float>::epsilon();  // not known to the compiler
    const float a = above_one;
    CHECK(__fmul_rn(a, a) - (1 + 2 * std::numeric_limits<float>::epsilon()) == 0);
    CHECK(__fmaf_rn(a, a, -1 - 2 * std::numeric_limits<float>::epsilon()) == std::ldexp(1.0f, -46));
    volatile double also_above_one = 1 + std::numeric_limits<double>::epsilon();
    const double b = also_above_one;
    CHECK(__dmul_rn(b, b) - (1 + 2 * std::numeric_limits<double>::epsilon()) == 0);
    CHECK(__fadd_rn(a * a, -1 - 2 * std::numeric_limits<float>::epsilon()) == 0);
    CHECK(__dadd_rn(-1 - 2 * std::numeric_limits<double>::epsilon(), b * b) == 0);
    CHECK(__fma_rn(b, b, -1 - 2 * std::numeric_limits<double>::epsilon()) == std::ldexp(1.0, -104));
  }

  TEST_CASE("vectors have the device's sizes and alignments") {
    static_assert(sizeof(float2) == 8 && alignof(float2) == 8, "");
    static_assert(sizeof(float4) == 16 && alignof(float4) == 16, "");
    static_assert(sizeof(double2) == 16 && alignof(double2) == 16, "");
    static_assert(sizeof(int2) == 8 && alignof(int2) == 8 && sizeof(int4) == 16 && alignof(int4) == 16, "");
    static_assert(sizeof(uint2) == 8 && alignof(uint2) == 8 && sizeof(uint4) == 16 && alignof(uint4) == 16,
                  "");
    const float4 x = make_float4(1, 2, 3, 4);
    CHECK(__ldg(&x).w == 4);
    CHECK(make_int4(1, 2, 3, 4).z == 3);
    CHECK(make_uint2(1, 2).y == 2);
    CHECK(make_double2(1, 2).x == 1);
  }
}
