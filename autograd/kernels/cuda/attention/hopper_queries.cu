#include <tapeformer/autograd/kernels/cuda/attention/hopper.h>
#include <tapeformer/autograd/kernels/cuda/device.h>

namespace tapeformer::kernels {
namespace {

/// One warp for each query of each head.
__global__ void hopper_query_facts_kernel(ForwardCase c, int batch, int width, const BFloat16* y,
                                          const BFloat16* dy, QueryFacts* facts) {
  const Index first = (Index{blockIdx.x} * kBlock + threadIdx.x) / kWarp,
              rows = Index{batch} * c.heads * c.queries;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
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
    delta = warp_reduce(delta, [](float a, float b2) { return a + b2; });
    const Span range = range_of(c, {b, head, 0, 0}, t);
    const float log_sum = c.log_sum[row];
    const bool is_real = log_sum != -INFINITY;
    if (lane == 0)
      facts[row] = {is_real ? log_sum * (c.factor / c.scale) : INFINITY, is_real ? delta : 0.0f, range.from,
                    range.to};
  }
}

/// One warp for each tile of queries of each batch entry.
__global__ void hopper_spans_kernel(ForwardCase c, int batch, Span* spans) {
  const int tiles = (c.queries + kGroupRows - 1) / kGroupRows;
  const int first = static_cast<int>((blockIdx.x * kBlock + threadIdx.x) / kWarp);
  for (int i = first; i < batch * tiles; i += static_cast<int>(gridDim.x) * kBlock / kWarp) {
    const Span span = span_of(c, {i / tiles, 0, 0, i % tiles * kGroupRows}, kGroupRows);
    if (threadIdx.x % kWarp == 0) spans[i] = span;
  }
}

}  // namespace

void find_query_facts(Cuda on, const ForwardCase& c, const AttentionShape& s, const BFloat16* y,
                      const BFloat16* dy, QueryFacts* facts) {
  launch(on, "hopper_query_facts", hopper_query_facts_kernel,
         blocks_for(s.batch * s.heads * s.queries * kWarp), dim3(kBlock), 0, c, static_cast<int>(s.batch),
         static_cast<int>(s.value_width), y, dy, facts);
}

void find_spans(Cuda on, const ForwardCase& c, Index batch, Span* spans) {
  launch(on, "hopper_spans", hopper_spans_kernel,
         blocks_for(batch * tiles_for(c.queries, kGroupRows) * kWarp), dim3(kBlock), 0, c,
         static_cast<int>(batch), spans);
}

}  // namespace tapeformer::kernels
