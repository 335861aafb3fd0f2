#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/cached_heads.h>

#include <cstring>
#include <numeric>

namespace tapeformer {
namespace {

/// A mask whose last axis is the keys, with zeros in the columns that are added.
Tensor widened(const Tensor& mask, Index keys) {
  if (!mask.defined() || mask.size(-1) >= keys) return mask;
  Shape shape = mask.shape();
  shape.set(-1, keys);
  const Tensor wide = Tensor::full(shape, 0, mask.dtype());
  const auto from = mask.size(-1) * bytes_of(mask.dtype()), to = keys * bytes_of(mask.dtype());
  for (Index row = 0; row < shape.elements(0, shape.rank() - 1); ++row) {
    std::memcpy(static_cast<char*>(wide.raw()) + row * to, static_cast<char*>(mask.raw()) + row * from,
                static_cast<std::size_t>(from));
  }
  return wide;
}

}  // namespace

AttentionOptions attention_options(const AttentionContext& context, const Dropout& dropout) {
  AttentionOptions options(context);
  options.dropout = dropout.active_probability();
  options.dropout_key = dropout.next_key();
  options.weights = context.weights;
  return options;
}

Tensor query_positions(const AttentionContext& context, Index length) {
  if (context.positions.defined()) return context.positions;
  const Tensor positions = Tensor::empty({length}, DType::i32);
  const Index first = context.cache != nullptr ? context.cache->length() : 0;
  auto* to = positions.data<std::int32_t>();
  std::iota(to, to + length, static_cast<std::int32_t>(first));
  return positions;
}

void append_heads(KvCache& cache, const KeyValueHeads& fresh) {
  const auto flat = [](const Tensor& x) {
    return x.defined() ? reshape(x, {x.size(0), x.size(1), x.size(2) * x.size(3)}) : x;
  };
  cache.append(flat(fresh.key_bsgd), flat(fresh.value_bsge));
}

KeyValueHeads held_heads(const KvCache& cache, const PackedHeads& heads, AttentionMasks& masks) {
  const Tensor keys = cache.keys(), values = cache.values();
  const Index rows = keys.size(0), room = keys.size(1);
  if (room > cache.length()) {
    if (!masks.key_lengths.defined()) masks.key_lengths = cache.lengths();
    masks.key_mask = widened(masks.key_mask, room);
    if (masks.mask.defined() && masks.mask.size(-1) > 1) masks.mask = widened(masks.mask, room);
  }
  const auto by_heads = [&](const Tensor& x, Index width) {
    return x.defined() ? x.alias({rows, room, heads.groups, width}) : x;
  };
  return {by_heads(keys, heads.key_width), by_heads(values, heads.value_width)};
}

}  // namespace tapeformer
