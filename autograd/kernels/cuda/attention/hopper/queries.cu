#include <tapeformer/autograd/kernels/cuda/attention/hopper/hopper.h>

namespace tapeformer::kernels {
namespace {

/// One warp for each query of each head.
__global__ void hopper_query_facts_kernel(ForwardCase c, int batch, int width, const BFloat16* y,
                                          const BFloat16* dy, QueryFacts* facts) {
  const Index first = (Index{blockIdx.x} * kBlock + threadIdx.x) / kWarp,
              rows = Index{batch} * c.heads * c.queries;
  const int lane = own_lane();
  for (Index row = first; row < rows; row += Index{gridDim.x} * kBlock / kWarp) {
    const int t = static_cast<int>(row % c.queries), head = static_cast<int>(row / c.queries % c.heads),
              b = static_cast<int>(row / c.queries / c.heads);
    const Index at = ((Index{b} * c.queries + t) * c.heads + head) * width;
    float delta = 0;
    for (int column = 2 * lane; column < width; column += 2 * kWarp) {
      const unsigned of_y = *reinterpret_cast<const unsigned*>(y + at + column),
                     of_dy = *reinterpret_cast<const unsigned*>(dy + at + column);
      delta = fmaf(low_bf16(of_y), low_bf16(of_dy), fmaf(high_bf16(of_y), high_bf16(of_dy), delta));
    }
    delta = warp_sum(delta);
    const Span range = range_of(c, {b, head, 0, 0}, t);
    const float log_sum = c.log_sum[row];
    const bool is_real = log_sum != -INFINITY;
    if (lane == 0)
      facts[row] = {is_real ? log_sum * (c.factor / c.scale) : INFINITY, is_real ? delta : 0.0f, range.from,
                    range.to};
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
  const auto least = [](int a, int b) { return min(a, b); };
  const auto most = [](int a, int b) { return max(a, b); };
  return {warp_reduce(span.from, least), warp_reduce(span.to, most), warp_reduce(span.all_from, most),
          warp_reduce(span.all_to, least), __all_sync(kAllLanes, span.is_whole) != 0};
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

}  // namespace

void find_query_facts(Cuda on, const ForwardCase& c, const AttentionShape& s, const BFloat16* y,
                      const BFloat16* dy, QueryFacts* facts) {
  launch(on, "hopper_query_facts", hopper_query_facts_kernel,
         blocks_for(s.batch * s.heads * s.queries * kWarp), c, static_cast<int>(s.batch),
         static_cast<int>(s.value_width), y, dy, facts);
}

Spans::Spans(Cuda on, const AttentionShape& s)
    : has_ranges_(s.key_from != nullptr || s.key_to != nullptr),
      memory_(on, has_ranges_ ? s.batch * tiles_of(s.queries, kGroupRows) : 0) {
  if (!has_ranges_) return;
  launch(on, "hopper_spans", hopper_spans_kernel,
         blocks_for(s.batch * tiles_of(s.queries, kGroupRows) * kWarp), case_of(s, nullptr, nullptr),
         static_cast<int>(s.batch), memory_.data());
}

}  // namespace tapeformer::kernels
