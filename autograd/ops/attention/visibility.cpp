#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/visibility.h>
#include <tapeformer/autograd/ops/attention/visibility.h>
#include <tapeformer/autograd/ops/broadcast.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/shape.h>

#include <algorithm>
#include <limits>

namespace tapeformer {
namespace {

bool restricts(const AttentionMasks& masks) {
  return masks.causal || masks.window_before != kUnlimited || masks.window_after != kUnlimited ||
         masks.key_lengths.defined() || masks.query_mask.defined() || masks.query_starts.defined() ||
         masks.key_mask.defined();
}

kernels::Visibility visibility_of(const AttentionMasks& masks, Index B, Index T, Index S) {
  kernels::Visibility visibility;
  visibility.batch = B, visibility.queries = T, visibility.keys = S;
  const bool packed = masks.query_starts.defined();
  visibility.sequences = packed ? masks.query_starts.elements() - 1 : B;
  visibility.causal = masks.causal;
  visibility.top_left = masks.alignment == CausalAlignment::top_left;
  const Index furthest = S + T;  // no two positions are farther apart
  visibility.stride = masks.key_stride, visibility.span = masks.key_span;
  visibility.before = std::min(masks.window_before, furthest);
  visibility.after = std::min(masks.window_after, furthest);
  visibility.key_lengths = address_or_null<std::int32_t>(masks.key_lengths);
  visibility.prefix_lengths = address_or_null<std::int32_t>(masks.prefix_lengths);
  visibility.query_starts = address_or_null<std::int32_t>(masks.query_starts);
  visibility.key_starts =
      masks.key_starts.defined() ? masks.key_starts.address<std::int32_t>() : visibility.query_starts;
  visibility.query_mask = address_or_null<bool>(masks.query_mask);
  visibility.key_mask = address_or_null<bool>(masks.key_mask);
  return visibility;
}

}  // namespace

VisibleKeys visible_keys(const AttentionMasks& masks, Index B, Index T, Index S, Device device) {
  if (!restricts(masks)) return {};
  const kernels::Visibility visibility = visibility_of(masks, B, T, S);
  const VisibleKeys visible{Tensor::empty({B, T}, DType::i32, device),
                            Tensor::empty({B, T}, DType::i32, device)};
  dispatch_on("visible_keys", device, [&](auto on) {
    kernels::find_visible_keys(on, visibility, visible.from.address<std::int32_t>(),
                               visible.to.address<std::int32_t>());
  });
  return visible;
}

Index count_pairs(const VisibleKeys& visible, Index rows, Index S) {
  if (!visible.defined()) return rows * S;
  const Tensor from = visible.from.to(Device::cpu()), to = visible.to.to(Device::cpu());
  Index pairs = 0;
  for (Index i = 0; i < rows; ++i)
    pairs += std::max(0, to.data<std::int32_t>()[i] - from.data<std::int32_t>()[i]);
  return pairs;
}

Tensor query_positions(const AttentionMasks& masks, Index B, Index T, Index S, Device device) {
  const kernels::Visibility visibility = visibility_of(masks, B, T, S);
  const Tensor positions = Tensor::empty({B, T}, DType::i32, device);
  dispatch_on("query_positions", device,
              [&](auto on) { kernels::find_positions(on, visibility, positions.address<std::int32_t>()); });
  return positions;
}

Tensor relative_pairs(const Tensor& relative_bias, const Tensor& positions, Index S) {
  const Index B = positions.size(0), T = positions.size(1), reach = relative_bias.size(1) / 2;
  const Tensor entries = Tensor::empty({B, T, S}, DType::i32, positions.device());
  dispatch_on("relative_pairs", positions.device(), [&](auto on) {
    kernels::write_relative_entries(on, B * T, S, reach, positions.address<std::int32_t>(),
                                    entries.address<std::int32_t>());
  });
  return permute(embedding(permute(relative_bias, {1, 0}), entries), {0, 3, 1, 2});
}

Tensor pairs_left_in(const Tensor& mask) {
  if (!mask.defined() || mask.dtype() == DType::boolean) return mask;
  const Tensor values = mask.to(wide(mask.dtype()));
  const Tensor out = equal(values, Tensor::scalar_like(values, -std::numeric_limits<double>::infinity()));
  const Tensor numbers = out.to(values.dtype());
  return equal(numbers, Tensor::scalar_like(numbers, 0));
}

SeenRows seen_rows(const Tensor& pairs, const Shape& scores, Index groups) {
  kernels::PairMask mask;
  mask.batch = scores[0], mask.heads = scores[1], mask.queries = scores[2], mask.keys = scores[3];
  mask.groups = groups;
  mask.pairs = pairs.address<bool>();
  broadcast_strides(scores, pairs.shape(), mask.strides);
  const auto empty = [&](const Shape& shape) { return Tensor::empty(shape, DType::boolean, pairs.device()); };
  const SeenRows seen{empty({mask.batch, mask.queries, mask.heads}),
                      empty({mask.batch, mask.keys, mask.groups})};
  dispatch_on("seen_rows", pairs.device(), [&](auto on) {
    kernels::find_seen_rows(on, mask, seen.queries.address<bool>(), seen.keys.address<bool>());
  });
  return seen;
}

Tensor visible_pairs(const VisibleKeys& visible, Index S) {
  if (!visible.defined()) return {};
  const Index B = visible.from.size(0), T = visible.from.size(1);
  const Tensor pairs = Tensor::empty({B, 1, T, S}, DType::boolean, visible.from.device());
  dispatch_on("visible_pairs", pairs.device(), [&](auto on) {
    kernels::write_visible_pairs(on, B * T, S, visible.from.address<std::int32_t>(),
                                 visible.to.address<std::int32_t>(), pairs.address<bool>());
  });
  return pairs;
}

}  // namespace tapeformer
