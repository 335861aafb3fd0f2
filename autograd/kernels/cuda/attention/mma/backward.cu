#include <tapeformer/autograd/kernels/cuda/attention/mma/backward.h>
#include <tapeformer/autograd/kernels/cuda/attention/paths.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

constexpr int kDeltaLanes = 8;  // lanes that sum a row

/// Computes the facts of queries, and of tiles of them, for the other kernels.
__global__ void attention_mma_prepare_kernel(AttentionShape s, const BFloat16* y, const BFloat16* dy,
                                             const float* log_sum, PreparedQueries prepared) {
  const Index thread = Index{blockIdx.x} * kBlock + threadIdx.x, threads = Index{gridDim.x} * kBlock;
  const int lane = static_cast<int>(threadIdx.x) % kDeltaLanes;
  const Index rows = s.batch * prepared.padded * s.heads;  // a multiple of a warp's rows
  for (Index row = thread / kDeltaLanes; row < rows; row += threads / kDeltaLanes) {
    const Index head = row % s.heads, t = row / s.heads % prepared.padded,
                b = row / s.heads / prepared.padded;
    float sum = 0;
    for (Index e = lane * 8; t < s.queries && e < s.value_width; e += kDeltaLanes * 8) {
      const Index at = ((b * s.queries + t) * s.heads + head) * s.value_width + e;
      const uint4 ys = *reinterpret_cast<const uint4*>(y + at),
                  dys = *reinterpret_cast<const uint4*>(dy + at);
      const auto add = [&](unsigned pair, unsigned other) {
        sum += low_bf16(pair) * low_bf16(other) + high_bf16(pair) * high_bf16(other);
      };
      add(ys.x, dys.x), add(ys.y, dys.y), add(ys.z, dys.z), add(ys.w, dys.w);
    }
    for (int offset = kDeltaLanes / 2; offset > 0; offset /= 2)
      sum += __shfl_xor_sync(kAllLanes, sum, offset);
    if (lane != 0) continue;
    const float own = t < s.queries ? log_sum[(b * s.heads + head) * s.queries + t] : kNothing;
    const Index at = (b * s.heads + head) * prepared.padded + t;
    prepared.log_sums[at] = own == kNothing ? -kNothing : own * kLog2E;
    prepared.deltas[at] = own == kNothing ? 0 : sum;
    if (head == 0) prepared.ranges[b * prepared.padded + t] = range_of(s, b, t);
  }
  const Index tiles = s.batch * prepared.padded / kMoving;
  for (Index tile = thread / kWarp; tile < tiles; tile += threads / kWarp) {
    const Index b = tile / (prepared.padded / kMoving);
    JointRange joint;
    for (Index row = tile * kMoving + own_lane(); row < (tile + 1) * kMoving; row += kWarp) {
      const Index t = row - b * prepared.padded;
      if (t < s.queries) joint.add(range_of(s, b, t));
    }
    joint.join();
    if (own_lane() == 0) prepared.tiles[tile] = joint;
  }
}

}  // namespace

bool tensor_core_attention_backward(Cuda on, const AttentionShape& s, const AttentionOperands<BFloat16>& x,
                                    const BFloat16* y, const float* log_sum, const BFloat16* dy,
                                    const AttentionGradients<BFloat16>& to) {
  const Index width = std::max(s.key_width, s.value_width);
  const HeadStrides dense = output_strides(s);
  const auto is_aligned = [](const BFloat16* rows, const HeadStrides& strides, Index of_width) {
    return rows == nullptr || has_aligned_rows(rows, strides, of_width);
  };
  if (s.weighting != AttentionWeighting::softmax || fastest_attention_path() < AttentionPath::tensor_cores ||
      width == 0 || width > 256 || !is_aligned(x.query, s.query, s.key_width) ||
      !is_aligned(to.dquery.to, s.query, s.key_width) || !is_aligned(x.key, s.key, s.key_width) ||
      !is_aligned(to.dkey.to, s.key, s.key_width) || !is_aligned(x.value, s.value, s.value_width) ||
      !is_aligned(to.dvalue.to, s.value, s.value_width) || !is_aligned(y, dense, s.value_width) ||
      !is_aligned(dy, dense, s.value_width))
    return false;
  bool fits = false;
  with_width(s, [&](auto of_block) {
    fits = has_tensor_cores(on, sizeof(BackwardShared<decltype(of_block)::value>));
  });
  if (!fits) return false;

  const Index padded = tiles_of(s.queries, kPaddedQueries) * kPaddedQueries;
  const Scratch<float> log_sums(on, s.batch * s.heads * padded), deltas(on, s.batch * s.heads * padded);
  const Scratch<SeenKeys> ranges(on, s.batch * padded);
  const Scratch<JointRange> tiles(on, s.batch * padded / kMoving);
  const MmaGradient c{
      x, to, dy, dense, {padded, log_sums.data(), deltas.data(), ranges.data(), tiles.data()}};
  launch(on, "attention_mma_prepare", attention_mma_prepare_kernel,
         blocks_for(s.batch * s.heads * padded * kDeltaLanes), dim3(kBlock), 0, s, y, dy, log_sum,
         c.prepared);
  if (c.dkey || c.dvalue) attention_mma_dkey(on, s, c);
  if (c.dquery) attention_mma_dquery(on, s, c);
  return true;
}

}  // namespace tapeformer::kernels
