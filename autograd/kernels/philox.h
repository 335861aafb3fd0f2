#pragma once

#include <tapeformer/autograd/bfloat16.h>
#include <tapeformer/autograd/shape.h>

#include <cstdint>

namespace tapeformer::kernels {

/// 128 random bits.
struct PhiloxBlock {
  std::uint32_t word[4];
};

/// All 64 bits of a product. Without the assembly, compilers for GPUs need one more instruction.
TAPEFORMER_HOST_DEVICE inline std::uint64_t full_product(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  std::uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return std::uint64_t{a} * b;
#endif
}

/// Philox 4x32 with ten rounds: a bijection of the 128-bit counter, chosen by the 64-bit key.
/// Source:  Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 4
TAPEFORMER_HOST_DEVICE inline PhiloxBlock philox_4x32_10(PhiloxBlock counter, std::uint32_t key0,
                                                         std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = full_product(0xD2511F53, counter.word[0]);
    const std::uint64_t product1 = full_product(0xCD9E8D57, counter.word[2]);
    counter = {{static_cast<std::uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<std::uint32_t>(product1),
                static_cast<std::uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<std::uint32_t>(product0)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

/// A position in a random sequence, whose word i is word i % 4 of block first_block + i / 4.
struct PhiloxStream {
  std::uint64_t seed = 0, stream = 0;
  std::uint64_t first_block = 0;
  /// For work that is queued once and runs several times: GPU memory with the number of blocks to add to
  /// first_block, which kernels read through settled(); nullptr for none.
  const std::uint64_t* moved_by = nullptr;

  /// The same position without moved_by; kernels on a GPU must draw from it.
  TAPEFORMER_HOST_DEVICE PhiloxStream settled() const {
    return {seed, stream, first_block + (moved_by != nullptr ? *moved_by : 0), nullptr};
  }

  /// The key is the seed; the counter has the block's number in its lower half and the stream in its upper.
  TAPEFORMER_HOST_DEVICE PhiloxBlock block(Index i) const {
    const std::uint64_t counter = first_block + static_cast<std::uint64_t>(i);
    return philox_4x32_10({{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                            static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}},
                          static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  }
  TAPEFORMER_HOST_DEVICE std::uint32_t word(Index i) const { return block(i / 4).word[i % 4]; }
};

/// A number in [0, 1), a multiple of 2^-53.
inline double uniform_double(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((std::uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

}  // namespace tapeformer::kernels
