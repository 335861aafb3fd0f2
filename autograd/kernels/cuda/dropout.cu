#include <tapeformer/autograd/kernels/cuda/pack.h>
#include <tapeformer/autograd/kernels/dropout.h>

namespace tapeformer::kernels {
namespace {

constexpr int kOwn = 8;  // neighbours of a lane, which share a byte of the mask
constexpr Index kWarpGroups = kWarp * kOwn / kDropoutGroup;

/// The bits of this lane's elements among those of kWarpGroups groups, the first one lowest. A warp draws two
/// groups at a time: each lane has the four words of one of their 32 blocks. For word w, the lower 16 lanes
/// vote on elements 16 w to 16 w + 15 of the first group, the upper ones on those of the second.
__device__ unsigned draw_bits(const PhiloxStream& stream, Index first_group, std::uint32_t dropped) {
  const int lane = own_lane(), run = lane * kOwn / 16;  // of 16 neighbours; four in a group
  const bool is_odd = run % 2 != 0, is_high = run % 4 >= 2, is_later = run >= 8;
  const Index block = first_group * (kDropoutGroup / 4) + lane;
  const PhiloxBlock random[2] = {stream.block(block), stream.block(block + kWarp)};
  unsigned own[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const unsigned first = __ballot_sync(kAllLanes, random[0].word[w] >= dropped);
    const unsigned later = __ballot_sync(kAllLanes, random[1].word[w] >= dropped);
    own[w] = is_later ? later : first;
  }
  const unsigned low = is_odd ? own[1] : own[0], high = is_odd ? own[3] : own[2];
  return (is_high ? high : low) >> (run / 4 % 2 * 16 + lane * kOwn % 16);
}

/// Calls use(the first of kWarpGroups groups, this lane's byte of the mask) for the groups of this warp.
template <class Use>
__device__ void for_each_own_byte(Index groups, Use&& use) {
  const Index warps = Index{gridDim.x} * blockDim.x / kWarp;
  for (Index first = (Index{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp * kWarpGroups; first < groups;
       first += warps * kWarpGroups)
    use(first, first * (kDropoutGroup / kOwn) + own_lane());
}
__device__ void store_bits(Index groups, Index byte, unsigned bits, std::int32_t* mask) {
  if (byte < groups * (kDropoutGroup / kOwn))
    reinterpret_cast<unsigned char*>(mask)[byte] = static_cast<unsigned char>(bits);
}

__global__ void dropout_mask_kernel(PhiloxStream stream, Index groups, std::uint32_t dropped,
                                    std::int32_t* mask) {
  stream = stream.settled();
  for_each_own_byte(groups, [&](Index first, Index byte) {
    store_bits(groups, byte, draw_bits(stream, first, dropped), mask);
  });
}

/// An element is kept if its bit, the lowest first, is set.
template <int N, class T>
__device__ Pack<Wide<T>, N> kept(const Pack<T, N>& from, unsigned bits, Wide<T> scale) {
  Pack<Wide<T>, N> values = widened(from);
#pragma unroll
  for (int k = 0; k < N; ++k) values.of[k] = (bits >> k & 1u) != 0 ? values.of[k] * scale : Wide<T>(0);
  return values;
}

/// The mask and the kept elements of x, which is on its way while the bits are drawn.
template <class T>
__global__ void dropout_forward_kernel(PhiloxStream stream, Index count, bool packed, std::uint32_t dropped,
                                       Wide<T> scale, const T* x, std::int32_t* mask, T* y) {
  stream = stream.settled();
  const Write<T> to{y, false};
  const Index groups = dropout_mask_words(count) / 2;
  for_each_own_byte(groups, [&](Index first, Index byte) {
    const Index from = byte * kOwn;
    const bool is_whole = packed && from + kOwn <= count;
    Pack<T, kOwn> values;
    if (is_whole) values = load_pack<kOwn>(x + from);
    const unsigned bits = draw_bits(stream, first, dropped);
    store_bits(groups, byte, bits, mask);
    if (is_whole) return put_pack(to, from, kept(values, bits, scale));
    for (int k = 0; k < kOwn && from + k < count; ++k)
      put_pack(to, from + k, kept(load_pack<1>(x + from + k), bits >> k, scale));
  });
}

template <class T>
__global__ void dropout_apply_kernel(Index count, bool packed, const std::int32_t* mask, Wide<T> scale,
                                     const T* x, Write<T> y) {
  for_each_pack_of_grid<kCommonPack<T>>(count, packed, [&](auto size, Index i) {
    const unsigned bits = static_cast<unsigned>(mask[i / 32]) >> (i % 32);
    put_pack(y, i, kept(load_pack<decltype(size)::value>(x + i), bits, scale));
  });
}

/// Blocks for a mask; their warps take several times kWarpGroups groups of a large one.
Index blocks_for_groups(Index groups) { return blocks_for_packs<kOwn>(groups * kDropoutGroup, true); }

}  // namespace

void dropout_mask(Cuda on, const PhiloxStream& stream, Index count, std::uint32_t dropped,
                  std::int32_t* mask) {
  const Index groups = dropout_mask_words(count) / 2;
  launch(on, "dropout_mask", dropout_mask_kernel, blocks_for_groups(groups), stream, groups, dropped, mask);
}

template <class T>
void dropout_forward(Cuda on, const PhiloxStream& stream, Index count, std::uint32_t dropped, double scale,
                     const T* x, std::int32_t* mask, T* y) {
  launch(on, "dropout_forward", dropout_forward_kernel<T>, blocks_for_groups(dropout_mask_words(count) / 2),
         stream, count, are_packed(x, y), dropped, scale, x, mask, y);
}

template <class T>
void dropout_apply(Cuda on, Index count, const std::int32_t* mask, double scale, const T* x, Write<T> y) {
  const bool packed = are_packed(x, y.to);
  launch(on, "dropout_apply", dropout_apply_kernel<T>, blocks_for_packs<kCommonPack<T>>(count, packed), count,
         packed, mask, scale, x, y);
}

TAPEFORMER_CUDA_KERNEL(dropout_forward);
TAPEFORMER_CUDA_KERNEL(dropout_apply);

}  // namespace tapeformer::kernels
