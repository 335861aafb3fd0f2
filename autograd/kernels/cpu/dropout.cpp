#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/dropout.h>

namespace tapeformer::kernels {
namespace {

constexpr Index kBlocks = 16;

/// philox_4x32_10 of sixteen blocks from `first` on, in lanes: words[w][b] is word w of block first + b.
void philox_lanes(const PhiloxStream& stream, std::uint64_t first, std::uint32_t words[4][kBlocks]) {
  auto key0 = static_cast<std::uint32_t>(stream.seed), key1 = static_cast<std::uint32_t>(stream.seed >> 32);
  const auto high2 = static_cast<std::uint32_t>(stream.stream);
  const auto high3 = static_cast<std::uint32_t>(stream.stream >> 32);
  for (Index b = 0; b < kBlocks; ++b) {
    const std::uint64_t counter = first + static_cast<std::uint64_t>(b);
    words[0][b] = static_cast<std::uint32_t>(counter);
    words[1][b] = static_cast<std::uint32_t>(counter >> 32);
    words[2][b] = high2;
    words[3][b] = high3;
  }
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (Index b = 0; b < kBlocks; ++b) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53} * words[0][b];
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * words[2][b];
      words[0][b] = static_cast<std::uint32_t>(product1 >> 32) ^ words[1][b] ^ key0;
      words[1][b] = static_cast<std::uint32_t>(product1);
      words[2][b] = static_cast<std::uint32_t>(product0 >> 32) ^ words[3][b] ^ key1;
      words[3][b] = static_cast<std::uint32_t>(product0);
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
}

}  // namespace

void dropout_mask(Cpu, const PhiloxStream& stream, Index count, std::uint32_t dropped, std::int32_t* mask) {
  parallel_ranges(dropout_mask_words(count) / 2, kDropoutGroup, [&](Index from, Index to) {
    for (Index group = from; group < to; ++group) {
      std::uint32_t words[4][kBlocks];
      philox_lanes(stream, stream.first_block + static_cast<std::uint64_t>(group * kBlocks), words);
      for (Index half = 0; half < 2; ++half) {
        std::uint32_t bits = 0;
#pragma omp simd reduction(| : bits)
        for (std::uint32_t i = 0; i < 32; ++i) {
          bits |= static_cast<std::uint32_t>(words[2 * half + i / 16][i % 16] >= dropped) << i;
        }
        mask[2 * group + half] = static_cast<std::int32_t>(bits);
      }
    }
  });
}

template <class T>
void dropout_apply(Cpu, Index count, const std::int32_t* mask, T scale, const T* x, Write<T> y) {
  const auto apply = [&](Index word, std::uint32_t length, bool add) {
    const auto bits = static_cast<std::uint32_t>(mask[word]);
    const T* from = x + word * 32;
    T* to = y.to + word * 32;
#pragma omp simd
    for (std::uint32_t i = 0; i < length; ++i) {
      const T kept = (bits >> i & 1) != 0 ? from[i] * scale : T(0);
      to[i] = add ? to[i] + kept : kept;
    }
  };
  parallel_ranges((count + 31) / 32, 32, [&](Index from, Index to) {
    const Index whole = std::min(to, count / 32);
    for (Index word = from; word < whole; ++word) apply(word, 32, y.add);
    if (whole < to) apply(whole, static_cast<std::uint32_t>(count % 32), y.add);
  });
}

template void dropout_apply(Cpu, Index, const std::int32_t*, float, const float*, Write<float>);
template void dropout_apply(Cpu, Index, const std::int32_t*, double, const double*, Write<double>);

}  // namespace tapeformer::kernels
