#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/dropout.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <cstring>

namespace tapeformer::kernels {
namespace {

constexpr Index kBlocks = 16;  // computed together
constexpr Index kWidth = 4, kVectors = kBlocks / kWidth;

/// One word of Philox's state for each of four blocks, in the low halves; the high halves do not matter.
using Lanes = std::uint64_t __attribute__((vector_size(32)));
using Halves = std::uint32_t __attribute__((vector_size(16)));

/// Products of the low halves.
inline Lanes product(const Lanes& a, const Lanes& b) {
#if defined(__AVX2__)  // one instruction, which no plain expression compiles to
  return reinterpret_cast<Lanes>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF);
#endif
}

/// philox_4x32_10 of sixteen blocks from `first` on: words[16 w + b] is word w of block first + b.
inline void philox_lanes(const PhiloxStream& stream, std::uint64_t first, std::uint32_t* words) {
  const Lanes zero = {}, count = {0, 1, 2, 3};
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
      std::memcpy(words + w * kBlocks + v * kWidth, &low, sizeof low);
    }
  }
}

template <class T>
inline void apply_word(std::uint32_t length, std::uint32_t bits, T scale, const T* x, Write<T> y) {
#pragma omp simd
  for (std::uint32_t i = 0; i < length; ++i) {
    const T kept = (bits & std::uint32_t{1} << i) != 0 ? x[i] * scale : T(0);
    y.to[i] = y.add ? y.to[i] + kept : kept;
  }
}

}  // namespace

void dropout_mask(Cpu, const PhiloxStream& stream, Index count, std::uint32_t dropped, std::int32_t* mask) {
  parallel_ranges(dropout_mask_words(count) / 2, kDropoutGroup, [&](Index from, Index to) {
    for (Index group = from; group < to; ++group) {
      std::uint32_t words[kDropoutGroup];
      philox_lanes(stream, stream.first_block + static_cast<std::uint64_t>(group * kBlocks), words);
      for (Index half = 0; half < 2; ++half) {
        const std::uint32_t* word = words + half * 32;
        std::uint32_t bits = 0;
#pragma omp simd reduction(| : bits)
        for (int i = 0; i < 32; ++i)  // without a branch: it would be a random one
          bits |= (0U - static_cast<std::uint32_t>(word[i] >= dropped)) & std::uint32_t{1} << i;
        mask[2 * group + half] = static_cast<std::int32_t>(bits);
      }
    }
  });
}

template <class T>
void dropout_apply(Cpu, Index count, const std::int32_t* mask, T scale, const T* x, Write<T> y) {
  parallel_ranges((count + 31) / 32, 32, [&](Index from, Index to) {
    for (Index word = from; word < to; ++word) {
      const auto bits = static_cast<std::uint32_t>(mask[word]);
      const Index at = word * 32;
      if (count - at < 32) {
        apply_word(static_cast<std::uint32_t>(count - at), bits, scale, x + at, Write<T>{y.to + at, y.add});
      } else {  // a length that the compiler knows
        apply_word(32, bits, scale, x + at, Write<T>{y.to + at, y.add});
      }
    }
  });
}

template void dropout_apply(Cpu, Index, const std::int32_t*, float, const float*, Write<float>);
template void dropout_apply(Cpu, Index, const std::int32_t*, double, const double*, Write<double>);

}  // namespace tapeformer::kernels
