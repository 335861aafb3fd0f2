#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/philox_lanes.h>
#include <tapeformer/autograd/kernels/dropout.h>

namespace tapeformer::kernels {
namespace {

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
      philox_lanes(stream, stream.first_block + static_cast<std::uint64_t>(group * kPhiloxBlocks), words);
      for (Index half = 0; half < 2; ++half) {
        const std::uint32_t* word = words + half * 32;
        std::uint32_t bits = 0;
#pragma omp simd reduction(| : bits)
        for (int i = 0; i < 32; ++i)  // without a branch, which could not be predicted
          bits |= (0U - static_cast<std::uint32_t>(word[i] >= dropped)) & std::uint32_t{1} << i;
        mask[2 * group + half] = static_cast<std::int32_t>(bits);
      }
    }
  });
}

template <class T>
void dropout_apply(Cpu, Index count, const std::int32_t* mask, double scale, const T* x, Write<T> y) {
  const T factor = static_cast<T>(scale);
  parallel_ranges((count + 31) / 32, 32, [&](Index from, Index to) {
    for (Index word = from; word < to; ++word) {
      const auto bits = static_cast<std::uint32_t>(mask[word]);
      const Index at = word * 32;
      if (count - at < 32) {
        apply_word(static_cast<std::uint32_t>(count - at), bits, factor, x + at, Write<T>{y.to + at, y.add});
      } else {  // a constant length
        apply_word(32, bits, factor, x + at, Write<T>{y.to + at, y.add});
      }
    }
  });
}

template <class T>
void dropout_forward(Cpu on, const PhiloxStream& stream, Index count, std::uint32_t dropped, double scale,
                     const T* x, std::int32_t* mask, T* y) {
  dropout_mask(on, stream, count, dropped, mask);
  dropout_apply(on, count, mask, scale, x, Write<T>{y, false});
}

TAPEFORMER_CPU_KERNEL(dropout_apply);
TAPEFORMER_CPU_KERNEL(dropout_forward);

}  // namespace tapeformer::kernels
