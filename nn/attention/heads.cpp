#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/ids.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/attention/heads.h>

namespace tapeformer {
namespace {

/// Masks have a column per key in the cache, without its spare room.
void check_columns(const char* name, const Tensor& mask, Index held) {
  if (mask.size(-1) == held) return;
  throw ShapeError(
      format("[attention] a mask must have a column for every key in the cache, this call's included; got "
             "{}={} for {} keys; try one that grows with the cache",
             name, mask.describe(), held));
}

void check_lengths(const Tensor& key_lengths, Index held) {
  require_i32("attention", "key_lengths", key_lengths);
  for (const std::int32_t length : key_lengths.to(Device::cpu()).to_vector<std::int32_t>())
    if (length > held)
      throw ShapeError(
          format("[attention] key_lengths must be at most the number of keys in the cache; got {} of {} keys",
                 length, held));
}

/// The mask, with zeros in columns for the room after the keys.
Tensor widened(const Tensor& mask, Index room) {
  if (mask.dtype() == DType::boolean) return widened(mask.to(DType::f32), room).to(DType::boolean);
  return pad(mask, -1, 0, room);
}

}  // namespace

PackedHeads resolved_heads(const char* op, Index width, Index output_width, const PackedHeads& heads,
                           const std::string& got) {
  const auto require = [&](bool holds, const std::string& rule, const std::string& sizes) {
    if (!holds) throw Error(format("[{}] {}; got {}{}", op, rule, got, sizes));
  };
  const auto& [H, G, D, E] = heads;
  require(width > 0 && H > 0, "width and heads must be positive", format("width={}, heads={}", width, H));
  require(G > 0 && H % G == 0, "heads must be a multiple of groups", format("heads={}, groups={}", H, G));
  for (const auto& [name, size] :
       {std::pair("output_width", output_width), std::pair("key_width", D), std::pair("value_width", E)})
    require(size >= 0, "no size may be negative", format("{}={}", name, size));
  const Index shared = or_else(output_width, width);
  const char* const name = output_width > 0 ? "output_width" : "width";
  require((D > 0 && E > 0) || shared % H == 0, format("{} must be divisible by heads", name),
          format("{}={}, heads={}; try a width that is a multiple of the heads", name, shared, H));
  return {H, G, or_else(D, shared / H), or_else(E, shared / H)};
}

void check_inputs(const char* op, const Tensor& query, const Tensor& memory, const KvCache* cache) {
  const auto refuse = [&](const char* rule, const char* remedy) {
    const bool tells_memory = memory.defined() && !is_same_tensor(query, memory);
    throw ShapeError(format("[{}] {}; got query={}{}; try {}", op, rule, query.describe(),
                            tells_memory ? ", memory=" + memory.describe() : "", remedy));
  };
  if (query.rank() != 3 || (memory.defined() && memory.rank() != 3))
    refuse("inputs must be [B, T, C]", "a batch of one sequence, [1, T, C]");
  if (!memory.defined() && (cache == nullptr || cache->length() == 0))
    refuse("a memory may be left out only once the cache holds it", "the memory in the first call");
}

void require_self_attention(const char* op, const char* what, bool is_self) {
  if (!is_self)
    throw Error(
        format("[{}] {} for self-attention; got a memory that is not the query; try cross=true", op, what));
}

void check_only_causal(const char* op, const char* rule, const Tensor& query, const Tensor& memory,
                       const AttentionContext& context) {
  const auto refuse = [op](const char* why, const std::string& got, const char* what) {
    throw Error(format("[{}] {}; got {}; try {}", op, why, got, what));
  };
  if (!is_same_tensor(query, memory))
    refuse("query and memory must be the same tensor",
           "query=" + query.describe() + ", memory=" + memory.describe(), "attention=mha");
  for (const auto& [name, mask] :
       {std::pair("mask", &context.mask), std::pair("key_mask", &context.key_mask),
        std::pair("query_mask", &context.query_mask), std::pair("prefix_lengths", &context.prefix_lengths),
        std::pair("key_lengths", &context.key_lengths), std::pair("query_starts", &context.query_starts),
        std::pair("key_starts", &context.key_starts)}) {
    if (mask->defined())
      refuse(rule, std::string(name) + "=" + mask->describe(),
             "padding behind the last real token, which none of them sees");
  }
  if (context.window_before != kUnlimited || context.window_after != kUnlimited)
    refuse(rule, "a window", "attention=mha");
  if (!context.causal && query.size(1) > 1)
    refuse("a token knows only those before it", "causal=false", "causal=true");
}

void clear_bias(Linear& layer) {
  if (layer.bias().defined()) layer.bias().set_value(Tensor::zeros(layer.bias().value().shape()));
}

Tensor split_heads(const Tensor& x, Index heads) {
  return reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads});
}

Tensor merge_heads(const Tensor& heads) {
  return reshape(heads, {heads.size(0), heads.size(1), heads.size(2) * heads.size(3)});
}

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

KeyValueHeads cached_kv(KvCache& cache, const PackedHeads& heads, AttentionOptions& options,
                        const KeyValueHeads& fresh) {
  const bool appends = fresh.key_bsgd.defined();
  const Index held = cache.length() + (appends ? fresh.key_bsgd.size(1) : 0);
  const bool has_columns = options.mask.defined() && options.mask.rank() > 0 && options.mask.size(-1) != 1;
  if (options.key_mask.defined()) check_columns("key_mask", options.key_mask, held);
  if (has_columns) check_columns("mask", options.mask, held);
  if (options.key_lengths.defined()) check_lengths(options.key_lengths, held);
  if (appends) append_heads(cache, fresh);
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
