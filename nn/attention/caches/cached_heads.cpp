#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/attention/caches/cached_heads.h>

namespace tapeformer {
namespace {

/// The room behind what a cache holds is its own business: masks are over what it holds.
void check_columns(const char* name, const Tensor& mask, Index held) {
  if (mask.size(-1) == held) return;
  throw ShapeError(
      std::string("[attention] a mask must have a column for every key in the cache, this call's ") +
      "included; got " + name + "=" + mask.describe() + " for " + std::to_string(held) +
      " keys; try one that grows with the cache");
}

void check_lengths(const Tensor& key_lengths, Index held) {
  const Tensor lengths = key_lengths.to(Device::cpu());
  for (Index i = 0; i < lengths.elements(); ++i) {
    if (lengths.at(i) <= static_cast<double>(held)) continue;
    throw ShapeError("[attention] key_lengths must be at most the number of keys in the cache; got " +
                     std::to_string(static_cast<Index>(lengths.at(i))) + " of " + std::to_string(held) +
                     " keys");
  }
}

/// Zeros in columns for the room behind the keys.
Tensor widened(const Tensor& mask, Index room) {
  if (mask.dtype() == DType::boolean) return widened(mask.to(DType::f32), room).to(DType::boolean);
  return pad(mask, -1, 0, room);
}

}  // namespace

AttentionOptions attention_options(const AttentionContext& context, const Dropout& dropout) {
  AttentionOptions options(context);
  options.dropout = dropout.active_probability();
  options.dropout_key = dropout.next_key();
  options.weights = context.weights;
  return options;
}

void append_heads(KvCache& cache, const KeyValueHeads& new_kv) {
  const auto flat = [](const Tensor& x) { return x.defined() ? merge_heads(x) : x; };
  cache.append(flat(new_kv.key_bsgd), flat(new_kv.value_bsge));
}

KeyValueHeads cached_kv(const KvCache& cache, const PackedHeads& heads, AttentionOptions& options) {
  const Index held = cache.length();
  const bool has_columns = options.mask.defined() && options.mask.rank() > 0 && options.mask.size(-1) != 1;
  if (options.key_mask.defined()) check_columns("key_mask", options.key_mask, held);
  if (has_columns) check_columns("mask", options.mask, held);
  if (options.key_lengths.defined()) check_lengths(options.key_lengths, held);
  Tensor keys = cache.keys(), values = cache.values();
  if (keys.size(1) > held && (options.weights != nullptr || Tape::current() != nullptr)) {
    keys = slice(keys, 1, 0, held);
    if (values.defined()) values = slice(values, 1, 0, held);
  }
  const Index rows = keys.size(0), room = keys.size(1);
  if (room > held || cache.step().lengths.defined()) {
    if (!options.key_lengths.defined()) options.key_lengths = cache.lengths(keys.device());
    if (options.key_mask.defined()) options.key_mask = widened(options.key_mask, room);
    if (has_columns) options.mask = widened(options.mask, room);
  }
  const auto as_heads = [&](const Tensor& x, Index width) {
    return x.defined() ? x.alias({rows, room, heads.groups, width}) : x;
  };
  return {as_heads(keys, heads.key_width), as_heads(values, heads.value_width)};
}

}  // namespace tapeformer
