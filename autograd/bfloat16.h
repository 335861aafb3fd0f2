#pragma once

#include <cstdint>
#include <cstring>

/// Marks functions that CUDA kernels call too.
#if defined(__CUDACC__)
#define TAPEFORMER_HOST_DEVICE __host__ __device__
#else
#define TAPEFORMER_HOST_DEVICE
#endif

namespace tapeformer {

/// The upper half of a float: its range with 8 bits of precision. A type for storage: arithmetic converts to
/// float and back, rounding to the nearest, ties to even.
struct BFloat16 {
  std::uint16_t bits;  ///< the sign, 8 bits of the exponent and 7 of the significand

  BFloat16() = default;
  /// Rounds to the nearest, ties to even; NaN stays NaN. A double or an integer is rounded to a float first.
  /// @{
  TAPEFORMER_HOST_DEVICE explicit BFloat16(float value) : bits(rounded(value)) {}
  TAPEFORMER_HOST_DEVICE explicit BFloat16(double value) : bits(rounded(static_cast<float>(value))) {}
  TAPEFORMER_HOST_DEVICE explicit BFloat16(int value) : bits(rounded(static_cast<float>(value))) {}
  /// @}
  /// Exact.
  TAPEFORMER_HOST_DEVICE explicit operator float() const {
    const std::uint32_t word = std::uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &word, sizeof value);
    return value;
  }
  /// Exact.
  TAPEFORMER_HOST_DEVICE explicit operator double() const { return static_cast<float>(*this); }

 private:
  TAPEFORMER_HOST_DEVICE static std::uint16_t rounded(float value) {
#if defined(__CUDA_ARCH__)
    std::uint32_t pair;  // the single conversion runs at a quarter of this one's rate
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(value));
    return static_cast<std::uint16_t>(pair);
#else
    std::uint32_t word;
    std::memcpy(&word, &value, sizeof word);
    if ((word & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>(word >> 16 | 0x40u);  // NaN
    return static_cast<std::uint16_t>((word + 0x7FFFu + (word >> 16 & 1u)) >> 16);
#endif
  }
};

}  // namespace tapeformer
