#pragma once

#include <tapeformer/autograd/kernels/philox.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <cstring>

namespace tapeformer::kernels {

constexpr Index kPhiloxBlocks = 16;  // the number that is computed together

/// philox_4x32_10 of sixteen blocks from `first` on: words[16 w + b] is word w of block first + b, the order
/// of a group of dropout's elements.
inline void philox_lanes(const PhiloxStream& stream, std::uint64_t first, std::uint32_t* words) {
#if defined(__AVX512F__)
  constexpr Index kWidth = 8;
#elif defined(__AVX2__)
  constexpr Index kWidth = 4;
#else
  constexpr Index kWidth = 2;
#endif
  constexpr Index kVectors = kPhiloxBlocks / kWidth;
  // One word of Philox's state for each of `kWidth` blocks, in the low halves; the high ones do not matter.
  using Lanes = std::uint64_t __attribute__((vector_size(8 * kWidth)));
  using Halves = std::uint32_t __attribute__((vector_size(4 * kWidth)));
  const auto product = [](const Lanes& a, const Lanes& b) -> Lanes {  // of the low halves
#if defined(__AVX512F__)  // compilers do not find this instruction
    return reinterpret_cast<Lanes>(
        _mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
    return reinterpret_cast<Lanes>(
        _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
    return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF);
#endif
  };
  const Lanes zero = {};
  Lanes count = {};
  for (Index i = 0; i < kWidth; ++i) count[i] = static_cast<std::uint64_t>(i);
  const Lanes factor0 = zero + 0xD2511F53, factor1 = zero + 0xCD9E8D57;
  Lanes x[4][kVectors];
  for (Index v = 0; v < kVectors; ++v) {
    x[0][v] = count + (first + static_cast<std::uint64_t>(v * kWidth));
    x[1][v] = x[0][v] >> 32;
    x[2][v] = zero + stream.stream;
    x[3][v] = zero + (stream.stream >> 32);
  }
  std::uint64_t key0 = stream.seed, key1 = stream.seed >> 32;
#pragma GCC unroll 1  // unrolled, it spills the keys
  for (int round = 0; round < 10; ++round) {
    for (Index v = 0; v < kVectors; ++v) {
      const Lanes product0 = product(x[0][v], factor0), product1 = product(x[2][v], factor1);
      x[0][v] = (product1 >> 32) ^ x[1][v] ^ key0;
      x[1][v] = product1;
      x[2][v] = (product0 >> 32) ^ x[3][v] ^ key1;
      x[3][v] = product0;
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  for (Index w = 0; w < 4; ++w) {
    for (Index v = 0; v < kVectors; ++v) {
      const auto low = __builtin_convertvector(x[w][v], Halves);
      std::memcpy(words + w * kPhiloxBlocks + v * kWidth, &low, sizeof low);
    }
  }
}

}  // namespace tapeformer::kernels
