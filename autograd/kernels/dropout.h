#pragma once

#include <tapeformer/autograd/kernels/philox.h>
#include <tapeformer/autograd/kernels/write.h>

namespace tapeformer::kernels {

/// Elements share blocks of random words in groups of this many.
constexpr Index kDropoutGroup = 64;
/// The 32-bit words in the mask of `count` elements: whole groups.
constexpr Index dropout_mask_words(Index count) { return (count + kDropoutGroup - 1) / kDropoutGroup * 2; }

/// The random word of element i: of its group's 16 blocks, block i % 16, word i / 16 % 4. So sixteen
/// neighbours use one word each of sixteen blocks, which suits vector lanes and the threads of a warp.
TAPEFORMER_HOST_DEVICE inline std::uint32_t dropout_word(const PhiloxStream& stream, Index i) {
  return stream.block(i / kDropoutGroup * 16 + i % 16).word[i / 16 % 4];
}

/// Bit i % 32 of mask[i / 32] is set when element i is kept: its word is not below `dropped`.
TAPEFORMER_PLAIN_KERNEL(dropout_mask, const PhiloxStream& stream, Index count, std::uint32_t dropped,
                        std::int32_t* mask);
/// y = kept ? scale * x : 0
TAPEFORMER_KERNEL(dropout_apply, Index count, const std::int32_t* mask, double scale, const T* x, Write<T> y);

/// Both the mask and y = kept ? scale * x : 0.
TAPEFORMER_KERNEL(dropout_forward, const PhiloxStream& stream, Index count, std::uint32_t dropped,
                  double scale, const T* x, std::int32_t* mask, T* y);

}  // namespace tapeformer::kernels
