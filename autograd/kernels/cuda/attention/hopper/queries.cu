#include <tapeformer/autograd/kernels/cuda/attention/hopper/hopper.h>

namespace tapeformer::kernels {
namespace {

/// One warp for each kWarp queries of a head; kLanes lanes read a row of at most 8 kLanes columns.
template <int kLanes>
__global__ void hopper_query_facts_kernel(ForwardCase c, int batch, int width, const BFloat16* y,
                                          const BFloat16* dy, QueryFacts* facts) {
  constexpr int kRows = kWarp / kLanes, kLoads = 4;  // rows at once, and of these how many times at once
  const int parts = (c.queries + kGroupRows - 1) / kGroupRows * (kGroupRows / kWarp), lane = own_lane();
  const Index first = (Index{blockIdx.x} * kBlock + threadIdx.x) / kWarp,
              all = Index{batch} * c.heads * parts;
  for (Index i = first; i < all; i += Index{gridDim.x} * kBlock / kWarp) {
    const int unit = static_cast<int>(i / parts), part = static_cast<int>(i - Index{unit} * parts);
    const int b = unit / c.heads, head = unit % c.heads, column = lane % kLanes * 8;
    float delta = 0;  // of this lane's query
#pragma unroll
    for (int begin = 0; begin < kLanes; begin += kLoads) {
      uint4 of_y[kLoads], of_dy[kLoads];
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        const int t = part * kWarp + (begin + k) * kRows + lane / kLanes;
        const bool is_there = t < c.queries && column < width;
        const Index at = ((Index{b} * c.queries + t) * c.heads + head) * width + column;
        of_y[k] = is_there ? *reinterpret_cast<const uint4*>(y + at) : make_uint4(0, 0, 0, 0);
        of_dy[k] = is_there ? *reinterpret_cast<const uint4*>(dy + at) : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        float sum = 0;
        const auto add = [&](unsigned p, unsigned q) {
          sum = fmaf(low_bf16(p), low_bf16(q), fmaf(high_bf16(p), high_bf16(q), sum));
        };
        add(of_y[k].x, of_dy[k].x), add(of_y[k].y, of_dy[k].y);
        add(of_y[k].z, of_dy[k].z), add(of_y[k].w, of_dy[k].w);
        const float of_row = __shfl_sync(kAllLanes, warp_sum<kLanes>(sum), lane % kRows * kLanes);
        if (lane / kRows == begin + k) delta = of_row;
      }
    }
    const int t = part * kWarp + lane, row = t % kGroupRows;
    const bool is_there = t < c.queries;
    const Span range = is_there ? range_of(c, {b, head, 0, 0}, t) : Span{};
    const float log_sum = is_there ? c.log_sum[Index{unit} * c.queries + t] : -INFINITY;
    const bool is_real = log_sum != -INFINITY;
    QueryFacts& tile = facts[i / (kGroupRows / kWarp)];
    tile.log_sum[row] = is_real ? log_sum * (c.factor / c.scale) : INFINITY;
    tile.delta[row] = is_real ? delta : 0.0f;
    tile.from[row] = range.from, tile.to[row] = range.to;
  }
}

/// The span of a tile of kGroupRows queries; all lanes of a warp call it.
__device__ Span find_span(const ForwardCase& c, const HopperPlace& place) {
  Span span{c.keys, 0, 0, c.keys, true};
  const int rows = min(kGroupRows, c.queries - place.query);
  for (int row = own_lane(); row < rows; row += kWarp) {
    const Span own = range_of(c, place, row), before = range_of(c, place, max(row - 1, 0));
    // Neighbouring ranges touch, so all together leave no gap.
    span.is_whole = span.is_whole && own.from < own.to && own.from <= before.to && before.from <= own.to;
    span.all_from = max(span.all_from, own.from), span.all_to = min(span.all_to, own.to);
    if (own.from >= own.to) continue;
    span.from = min(span.from, own.from), span.to = max(span.to, own.to);
  }
  return {least_of_warp(span.from), most_of_warp(span.to), most_of_warp(span.all_from),
          least_of_warp(span.all_to), __all_sync(kAllLanes, span.is_whole) != 0};
}

/// One warp for each tile of queries of each batch entry.
__global__ void hopper_spans_kernel(ForwardCase c, int batch, Span* spans) {
  const int tiles = (c.queries + kGroupRows - 1) / kGroupRows;
  const int first = static_cast<int>((blockIdx.x * kBlock + threadIdx.x) / kWarp);
  for (int i = first; i < batch * tiles; i += static_cast<int>(gridDim.x) * kBlock / kWarp) {
    const Span span = find_span(c, {i / tiles, 0, 0, i % tiles * kGroupRows});
    if (own_lane() == 0) spans[i] = span;
  }
}

/// One warp for each group of kWarp tiles of a batch entry.
__global__ void hopper_joint_spans_kernel(int count, int tiles, const Span* spans, Span* joint) {
  const int groups = (tiles + kWarp - 1) / kWarp;
  const int first = static_cast<int>((blockIdx.x * kBlock + threadIdx.x) / kWarp);
  for (int i = first; i < count; i += static_cast<int>(gridDim.x) * kBlock / kWarp) {
    const int own = i % groups * kWarp + own_lane();
    Span span{std::numeric_limits<int>::max(), 0, 0, 0, false};
    if (own < tiles) {
      const Span of_tile = spans[i / groups * tiles + own];
      if (of_tile.from < of_tile.to) span.from = of_tile.from, span.to = of_tile.to;
    }
    span.from = least_of_warp(span.from), span.to = most_of_warp(span.to);
    if (own_lane() == 0) joint[i] = span;
  }
}

}  // namespace

void find_query_facts(Cuda on, const ForwardCase& c, const AttentionShape& s, const BFloat16* y,
                      const BFloat16* dy, QueryFacts* facts) {
  const Index warps = s.batch * s.heads * tiles_of(s.queries, kGroupRows) * (kGroupRows / kWarp);
  const auto width = static_cast<int>(s.value_width);
  launch(on, "hopper_query_facts", width <= 64 ? hopper_query_facts_kernel<8> : hopper_query_facts_kernel<16>,
         blocks_for(warps * kWarp), c, static_cast<int>(s.batch), width, y, dy, facts);
}

Spans::Spans(Cuda on, const AttentionShape& s)
    : has_ranges_(s.key_from != nullptr || s.key_to != nullptr),
      size_(has_ranges_ ? s.batch * tiles_of(s.queries, kGroupRows) : 0),
      joint_size_(size_ > s.batch * kWarp ? s.batch * tiles_of(size_ / s.batch, kWarp) : 0),
      memory_(on, size_ + joint_size_) {
  if (!has_ranges_) return;
  launch(on, "hopper_spans", hopper_spans_kernel, blocks_for(size_ * kWarp), case_of(s, nullptr, nullptr),
         s.batch, memory_.data());
  launch(on, "hopper_joint_spans", hopper_joint_spans_kernel, blocks_for(joint_size_ * kWarp), joint_size_,
         size_ / s.batch, memory_.data(), memory_.data() + size_);
}

}  // namespace tapeformer::kernels
