#include <tapeformer/autograd/kernels/cuda/device.h>
#include <tapeformer/autograd/kernels/dropout.h>

namespace tapeformer::kernels {
namespace {

/// A warp makes the bits of two groups, a lane the four words of one of their 32 blocks: of word w, the lower
/// 16 lanes vote on elements 16 w to 16 w + 15 of the first group, the upper ones of the second.
__global__ void dropout_mask_kernel(PhiloxStream stream, Index groups, std::uint32_t dropped,
                                    std::int32_t* mask) {
  const Index warps = Index{gridDim.x} * blockDim.x / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (Index first = (Index{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp * 2; first < groups;
       first += warps * 2) {
    const PhiloxBlock random = stream.block(first * (kDropoutGroup / 4) + lane);
    unsigned votes[4];
    for (int w = 0; w < 4; ++w) votes[w] = __ballot_sync(0xFFFFFFFFu, random.word[w] >= dropped);
    const int group = lane / 2, half = lane % 2;
    if (group < 2 && first + group < groups) {
      const unsigned low = half == 0 ? votes[0] : votes[2], high = half == 0 ? votes[1] : votes[3];
      const unsigned bits = group == 0 ? (low & 0xFFFFu) | high << 16 : low >> 16 | (high & 0xFFFF0000u);
      mask[2 * (first + group) + half] = static_cast<std::int32_t>(bits);
    }
  }
}

template <class T>
__global__ void dropout_apply_kernel(Index count, const std::int32_t* mask, Wide<T> scale, const T* x,
                                     Write<T> y) {
  for_each_index(count, [&](Index i) {
    const bool kept = (static_cast<std::uint32_t>(mask[i / 32]) >> (i % 32) & 1u) != 0;
    y.put(i, kept ? static_cast<Wide<T>>(x[i]) * scale : Wide<T>(0));
  });
}

}  // namespace

void dropout_mask(Cuda on, const PhiloxStream& stream, Index count, std::uint32_t dropped,
                  std::int32_t* mask) {
  const Index groups = dropout_mask_words(count) / 2;
  launch(on, "dropout_mask", dropout_mask_kernel, blocks_for((groups + 1) / 2 * kWarp), dim3(kBlock), 0,
         stream, groups, dropped, mask);
}

template <class T>
void dropout_apply(Cuda on, Index count, const std::int32_t* mask, Wide<T> scale, const T* x, Write<T> y) {
  launch(on, "dropout_apply", dropout_apply_kernel<T>, blocks_for(count), dim3(kBlock), 0, count, mask, scale,
         x, y);
}

template void dropout_apply(Cuda, Index, const std::int32_t*, float, const float*, Write<float>);
template void dropout_apply(Cuda, Index, const std::int32_t*, double, const double*, Write<double>);
template void dropout_apply(Cuda, Index, const std::int32_t*, float, const BFloat16*, Write<BFloat16>);

}  // namespace tapeformer::kernels
