#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/visibility.h>
#include <tapeformer/autograd/ops/attention_visibility.h>
#include <tapeformer/autograd/ops/broadcast.h>

#include <algorithm>
#include <limits>

namespace tapeformer {
namespace {

bool restricts(const AttentionMasks& masks) {
  return masks.causal || masks.window_before != kUnlimited || masks.window_after != kUnlimited ||
         masks.key_lengths.defined() || masks.query_mask.defined() || masks.query_starts.defined() ||
         masks.key_mask.defined();
}

template <class T>
const T* address_of(const Tensor& x) {
  return x.defined() ? x.address<T>() : nullptr;
}

/// f(row, from, to) for every row of B T.
template <class F>
void each_range(const VisibleKeys& visible, const F& f) {
  const Tensor first = visible.from.to(Device::cpu()), end = visible.to.to(Device::cpu());
  const std::int32_t *from = first.data<std::int32_t>(), *to = end.data<std::int32_t>();
  for (Index row = 0; row < first.elements(); ++row) f(row, Index{from[row]}, Index{to[row]});
}

Tensor bools(const Shape& shape) { return Tensor::zeros(shape, DType::boolean, Device::cpu()); }

}  // namespace

VisibleKeys visible_keys(const AttentionMasks& masks, Index B, Index T, Index S, Device device) {
  if (!restricts(masks)) return {};
  kernels::Visibility visibility;
  visibility.batch = B, visibility.queries = T, visibility.keys = S;
  const bool packed = masks.query_starts.defined();
  visibility.sequences = packed ? masks.query_starts.elements() - 1 : B;
  visibility.causal = masks.causal;
  visibility.top_left = masks.alignment == CausalAlignment::top_left;
  const Index furthest = S + T;  // no two positions are further apart
  visibility.before = std::min(masks.window_before, furthest);
  visibility.after = std::min(masks.window_after, furthest);
  visibility.key_lengths = address_of<std::int32_t>(masks.key_lengths);
  visibility.prefix_lengths = address_of<std::int32_t>(masks.prefix_lengths);
  visibility.query_starts = address_of<std::int32_t>(masks.query_starts);
  visibility.key_starts =
      masks.key_starts.defined() ? masks.key_starts.address<std::int32_t>() : visibility.query_starts;
  visibility.query_mask = address_of<bool>(masks.query_mask);
  visibility.key_mask = address_of<bool>(masks.key_mask);
  const VisibleKeys visible{Tensor::empty({B, T}, DType::i32, device),
                            Tensor::empty({B, T}, DType::i32, device)};
  dispatch_on("visible_keys", device, [&](auto on) {
    kernels::find_visible_keys(on, visibility, visible.from.address<std::int32_t>(),
                               visible.to.address<std::int32_t>());
  });
  return visible;
}

Tensor seeing_queries(const VisibleKeys& visible) {
  if (!visible.defined()) return {};
  const Tensor sees = bools(visible.from.shape());
  each_range(visible, [&](Index row, Index from, Index to) { sees.data<bool>()[row] = from < to; });
  return sees.to(visible.from.device());
}

Tensor seen_keys(const VisibleKeys& visible, const Tensor& key_mask, Index S) {
  if (!visible.defined()) return key_mask;
  const Index B = visible.from.size(0), T = visible.from.size(1);
  const Tensor seen = bools({B, S}), mask = key_mask.defined() ? key_mask.to(Device::cpu()) : key_mask;
  const bool* real = mask.defined() ? mask.data<bool>() : nullptr;
  Index marked = 0;  // up to here; neither end of the ranges ever moves back within a batch entry
  each_range(visible, [&](Index row, Index from, Index to) {
    if (row % T == 0) marked = 0;
    if (from >= to) return;
    const Index begin = row / T * S;
    for (Index s = std::max(from, marked); s < to; ++s) {
      seen.data<bool>()[begin + s] = real == nullptr || real[begin + s];
    }
    marked = std::max(marked, to);
  });
  return seen.to(visible.from.device());
}

Tensor pairs_left_in(const Tensor& mask) {
  if (!mask.defined() || mask.dtype() == DType::boolean) return mask;
  Tensor here = mask.to(Device::cpu());
  if (here.dtype() == DType::bf16) here = here.to(DType::f32);
  const Tensor pairs = bools(mask.shape());
  bool* left_in = pairs.data<bool>();
  dispatch(
      "attention",
      [&](auto, const auto* values) {
        using Value = kernels::Wide<std::decay_t<decltype(*values)>>;
        for (Index i = 0; i < here.elements(); ++i) {
          left_in[i] = static_cast<Value>(values[i]) != -std::numeric_limits<Value>::infinity();
        }
      },
      here);
  const bool all = std::find(left_in, left_in + pairs.elements(), false) == left_in + pairs.elements();
  return all ? Tensor() : pairs.to(mask.device());
}

SeenRows seen_rows(const Tensor& pairs, const Shape& scores, Index groups) {
  const Index B = scores[0], H = scores[1], T = scores[2], S = scores[3];
  const Tensor here = pairs.to(Device::cpu());
  const SeenRows seen{bools({B, T, H}), bools({B, S, groups})};
  Index strides[4];
  broadcast_strides(scores, pairs.shape(), strides);
  for (Index row = 0; row < B * H * T; ++row) {
    const Index b = row / (H * T), h = row / T % H, t = row % T;
    const bool* may = here.data<bool>() + b * strides[0] + h * strides[1] + t * strides[2];
    bool& sees = seen.queries.data<bool>()[(b * T + t) * H + h];
    bool* keys = seen.keys.data<bool>() + b * S * groups + h / (H / groups);
    for (Index s = 0; s < S; ++s) {
      if (may[s * strides[3]]) sees = keys[s * groups] = true;
    }
  }
  return {seen.queries.to(pairs.device()), seen.keys.to(pairs.device())};
}

Tensor visible_pairs(const VisibleKeys& visible, Index S) {
  if (!visible.defined()) return {};
  const Tensor pairs = bools({visible.from.size(0), 1, visible.from.size(1), S});
  bool* may = pairs.data<bool>();
  each_range(visible, [&](Index row, Index from, Index to) {
    for (Index s = 0; s < S; ++s) may[row * S + s] = from <= s && s < to;
  });
  return pairs.to(visible.from.device());
}

}  // namespace tapeformer
