#include <tapeformer/autograd/kernels/cuda/attention/hopper/hopper.h>
#include <tapeformer/autograd/kernels/cuda/attention/mma/mma.h>

namespace tapeformer::kernels {
namespace {

/// The nibbles of 16 bits, one in each byte.
__device__ unsigned nibbles_apart(unsigned bits) {
  bits = (bits | bits << 8) & 0x00FF00FFu;
  return (bits | bits << 4) & 0x0F0F0F0Fu;
}
/// The pairs of bits of each nibble, one in each nibble of its byte.
__device__ unsigned pairs_apart(unsigned nibbles) { return (nibbles | nibbles << 2) & 0x33333333u; }

/// The bits of kept_bits(), a nibble in each byte. With kAligned the keys are a group, of which each lane
/// computes four blocks.
template <bool kAligned>
__device__ unsigned kept_nibbles(const PhiloxStream& random, std::uint32_t dropped, Index element) {
  if constexpr (!kAligned) return nibbles_apart(kept_bits(random, dropped, element));
  unsigned bits = 0;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const PhiloxBlock words = random.block(element / 4 + n / 2 * 8 + own_lane() % 4 * 2 + n % 2);
#pragma unroll
    for (int w = 0; w < 4; ++w) bits |= (words.word[w] >= dropped ? 1u : 0u) << (8 * w + n);
  }
  return bits;
}

/// A warp draws a tile of kGroupRows queries and keys, 16 queries at a time. A lane draws the bits of those
/// scores that a lane of a consumer has (see kept_bits()); of transposed scores, warp v of a warpgroup has
/// keys 16 v to 16 v + 15, whose bits are byte v here.
template <bool kAligned>
__global__ void hopper_dropout_kernel(ForwardCase c, int batch, PhiloxStream stream, std::uint32_t dropped,
                                      KeptWeights of_queries, KeptWeights of_keys) {
  const PhiloxStream random = stream.settled();
  const int query_tiles = (c.queries + kGroupRows - 1) / kGroupRows,
            key_tiles = (c.keys + kGroupRows - 1) / kGroupRows;
  const int lane = own_lane(), g = lane / 4;
  const int first = static_cast<int>((blockIdx.x * kBlock + threadIdx.x) / kWarp);
  for (int i = first; i < batch * c.heads * query_tiles * key_tiles;
       i += static_cast<int>(gridDim.x) * kBlock / kWarp) {
    const int unit = i / key_tiles / query_tiles, query_tile = i / key_tiles % query_tiles;
    const int key_tile = i % key_tiles, key = key_tile * kGroupRows;
    if (c.spans != nullptr) {
      const Span seen = c.spans[unit / c.heads * query_tiles + query_tile];
      if (seen.from >= key + kGroupRows || seen.to <= key) continue;
    }
    const Index element = (Index{unit} * c.queries + query_tile * kGroupRows) * c.keys + key;
    unsigned transposed[4] = {};
#pragma unroll 1
    for (int warp = 0; warp < 4; ++warp) {
      unsigned bits[2];
#pragma unroll
      for (int h = 0; h < 2; ++h)
        bits[h] = kept_nibbles<kAligned>(random, dropped, element + Index{warp * 16 + g + 8 * h} * c.keys);
      if (of_queries.words != nullptr)
        of_queries.at(unit, query_tile / 2, key_tile)[query_tile % 2 * kWarpgroup + warp * kWarp + lane] =
            pairs_apart(bits[0]) | pairs_apart(bits[1]) << 2;
      // Bits of neighbouring keys become bits of neighbouring queries.
      const unsigned own = bits[0] | bits[1] << 4, other = __shfl_xor_sync(kAllLanes, own, 4);
      const unsigned mixed = g % 2 == 0 ? (own & 0x55555555u) | (other & 0x55555555u) << 1
                                        : (own & 0xAAAAAAAAu) | (other & 0xAAAAAAAAu) >> 1;
#pragma unroll
      for (int v = 0; v < 4; ++v) transposed[v] |= (mixed >> (8 * v) & 0xFFu) << (8 * warp);
    }
    if (of_keys.words == nullptr) continue;
    unsigned* const to = of_keys.at(unit, key_tile / 2, query_tile) + key_tile % 2 * kWarpgroup;
#pragma unroll
    for (int v = 0; v < 4; ++v) to[v * kWarp + lane % 4 * 8 + g % 2 * 4 + g / 2] = transposed[v];
  }
}

/// The layout of words, none unless they are wanted. The number of steps is even, as the forward kernel may
/// read two at once.
KeptWeights described(bool is_wanted, const AttentionShape& s, Index rows, Index others) {
  const Index steps = 2 * tiles_of(others, 2 * kGroupRows), tiles = tiles_of(rows, 2 * kGroupRows);
  return {nullptr, s.drops && is_wanted ? static_cast<int>(tiles) : 0, static_cast<int>(steps),
          static_cast<float>(s.kept_scale)};
}
Index words_of(const AttentionShape& s, const KeptWeights& kept) {
  return s.batch * s.heads * kept.tiles * kept.steps * kConsumers;
}

}  // namespace

Dropout::Dropout(Cuda on, const ForwardCase& c, const AttentionShape& s, bool of_queries, bool of_keys)
    : of_queries_(described(of_queries, s, s.queries, s.keys)),
      of_keys_(described(of_keys, s, s.keys, s.queries)),
      queries_(on, words_of(s, of_queries_)),
      keys_(on, words_of(s, of_keys_)) {
  of_queries_.words = queries_.data(), of_keys_.words = keys_.data();
  if (!s.drops) return;
  const Index tiles = s.batch * s.heads * tiles_of(s.queries, kGroupRows) * tiles_of(s.keys, kGroupRows);
  launch(on, "hopper_dropout",
         s.keys % kDropoutGroup == 0 ? hopper_dropout_kernel<true> : hopper_dropout_kernel<false>,
         blocks_for(tiles * kWarp), c, s.batch, s.dropout, s.dropped, of_queries_, of_keys_);
}

}  // namespace tapeformer::kernels
