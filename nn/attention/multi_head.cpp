#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/nn/initialization.h>

#include <algorithm>
#include <string_view>

namespace tapeformer {
namespace {

/// The projections that are made before dropout_: all but the joint one of key and value.
std::vector<Linear> made_projections(const AttentionConfig& config, const PooledVector<Index>& rows,
                                     Generator& random) {
  std::vector<Linear> inputs;
  const auto add = [&](Index width, Index outputs) {
    inputs.emplace_back(LinearConfig{width, outputs, config.bias, {}}, random);
  };
  add(config.width, config.packed ? rows[0] + rows[1] + rows[2] : rows[0]);
  if (config.packed || config.groups > 0 || config.shared_keys) return inputs;
  add(config.memory_width, rows[1]);
  add(config.value_memory_width, rows[2]);
  return inputs;
}

void clear_bias(Linear& layer) {
  if (layer.bias().defined()) layer.bias().set_value(Tensor::zeros(layer.bias().value().shape()));
}

/// What complete() does for all of these kinds.
void complete_keys(AttentionConfig& config) {
  config.exclusive = config.exclusive && !config.cross;
  ScoreModifiers::complete(config);
  if (!config.shared_keys) return;
  config.packed = false;
  const char* const excluded = config.cross ? "cross" : config.value_residual ? "value_residual" : nullptr;
  if (excluded == nullptr) return;
  throw Error(std::string("[attention] a layer with shared_keys has no values of its own; got attention=") +
              config.kind + ", shared_keys=true, " + excluded + "=true; try " + excluded + "=false");
}

void check_packed(const AttentionConfig& config) {
  if (!config.packed || (config.memory_width == config.width && config.value_memory_width == config.width)) {
    return;
  }
  throw Error("[attention] a packed projection needs inputs of one width; got attention=" + config.kind +
              ", width=" + std::to_string(config.width) +
              ", memory_width=" + std::to_string(config.memory_width) +
              ", value_memory_width=" + std::to_string(config.value_memory_width) +
              (config.groups > 0 ? "; try cross=true" : "; try packed=false"));
}

}  // namespace

void MultiHeadAttention::complete_multi_head(AttentionConfig& config) {
  config.packed = config.packed && !config.cross;
  complete_keys(config);
  check_packed(config);
}

void MultiHeadAttention::complete_grouped_query(AttentionConfig& config) {
  const Index H = config.heads;
  for (Index divisor = 2; config.groups == 0 && divisor <= H / divisor; ++divisor) {
    if (H % divisor == 0) config.groups = H / divisor;
  }
  config.groups = or_else(config.groups, 1);
  config.packed = !config.cross;
  complete_keys(config);
  check_packed(config);
}

void MultiHeadAttention::complete_multi_query(AttentionConfig& config) {
  config.groups = 1;
  complete_grouped_query(config);
}

MultiHeadAttention::MultiHeadAttention(const AttentionConfig& config, Generator& random)
    : config_(config.resolved()),
      heads_{config_.heads, config_.key_heads(), config_.key_width, config_.value_width},
      part_widths_{heads_.heads * heads_.key_width, heads_.groups * heads_.key_width,
                   heads_.groups * heads_.value_width},
      projections_(made_projections(config_, part_widths_, random)),
      output_({heads_.heads * heads_.value_width, config_.output_width, *config_.output_bias, {}}, random),
      dropout_({config_.dropout}, random),
      norms_(config_),
      modifiers_(config_, random),
      gates_(config_, random) {
  if (config_.output_dropout > 0) output_dropout_.emplace(DropoutConfig{config_.output_dropout}, random);
  // Made last on purpose: drawn earlier, it would shift dropout_'s random stream, and change seeded runs.
  if (!config_.packed && config_.groups > 0 && !config_.shared_keys) {
    projections_.emplace_back(
        LinearConfig{config_.memory_width, part_widths_[kKey] + part_widths_[kValue], config_.bias, {}},
        random);
  }
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    const auto first = part_widths_.begin() + static_cast<std::ptrdiff_t>(i);
    const bool has_rest = i + 1 == projections_.size() && !config_.shared_keys;
    const auto last = has_rest ? part_widths_.end() : first + 1;
    xavier_uniform_parts(projections_[i].weight(), {first, last}, random);
    clear_bias(projections_[i]);
  }
  xavier_uniform(output_.weight(), random);
  clear_bias(output_);
  if (config_.value_residual) value_residual_ = Parameter(Tensor::full({2}, 0.5));
}

Tensor MultiHeadAttention::operator()(const Tensor& query, const Tensor& memory,
                                      const AttentionContext& context) const {
  return (*this)(query, memory, memory, context);
}

Tensor MultiHeadAttention::operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const AttentionContext& context) const {
  check_inputs("multi_head", query, key, context.cache);
  check_inputs("multi_head", query, value, context.cache);
  if (!config_.sequence_first) return attend(query, key, value, context);
  const Axes swapped{1, 0, 2};
  const auto batch_first = [&](const Tensor& x) { return x.defined() ? permute(x, swapped) : x; };
  const Tensor query_btc = batch_first(query);  // one copy for inputs that are the same
  const Tensor key_bsc = is_same_tensor(query, key) ? query_btc : batch_first(key);
  const Tensor value_bsc = is_same_tensor(key, value) ? key_bsc : batch_first(value);
  return permute(attend(query_btc, key_bsc, value_bsc, context), swapped);
}

Tensor MultiHeadAttention::attend(const Tensor& query, const Tensor& key, const Tensor& value,
                                  const AttentionContext& context) const {
  const bool is_self = !config_.cross && is_same_tensor(query, key) && is_same_tensor(key, value);
  check_context(context, is_self);
  Tensor own_bsge = context.shared.value_bsge;
  Tensor heads_bthe = config_.shared_keys ? attend_shared(query, context)
                      : is_self && config_.packed && norms_.takes_packed()
                          ? attend_packed(query, context, own_bsge)
                          : attend_apart(query, key, value, is_self, context, own_bsge);
  if (config_.exclusive) heads_bthe = without_own_value(heads_bthe, own_bsge);
  const Tensor y_bto = output_(merge_heads(gates_(heads_bthe, query)));
  return output_dropout_ ? (*output_dropout_)(y_bto) : y_bto;
}

void MultiHeadAttention::check_context(const AttentionContext& context, bool is_self) const {
  const auto require = [](bool holds, const char* rule) {
    if (!holds) throw Error(std::string("[multi_head] ") + rule);
  };
  const auto check_given = [&](bool option, bool given, const char* name, const std::string_view what) {
    if (option == given) return;  // a step builds no text
    const std::string in_context = std::string(what) + " in the context";
    throw Error("[multi_head] " +
                (option ? name + (" needs " + in_context) : in_context + " need " + std::string(name)));
  };
  require(is_self || !config_.rotary,
          "rotary positions are for self-attention; got a memory that is not the query");
  require(is_self || !config_.exclusive,
          "exclusive is for self-attention; got a memory that is not the query; try cross=true");
  check_given(config_.value_residual, context.first_values.defined(), "value_residual", "first_values");
  check_given(config_.shared_keys, context.shared.key_bsgd.defined(), "shared_keys",
              "shared keys and values");
}

AttentionOptions MultiHeadAttention::options_of(const AttentionContext& context) const {
  AttentionOptions options = attention_options(context, dropout_);
  options.scale = config_.score_scale > 0 ? config_.score_scale : norms_.scale();
  return options;
}

/// Self-attention with one matrix for queries, keys and values: one product projects to all heads. Without a
/// cache, packed_attention() reads them from its result without copies.
Tensor MultiHeadAttention::attend_packed(const Tensor& x, const AttentionContext& context,
                                         Tensor& own_values) const {
  const Index H = heads_.heads, G = heads_.groups;
  AttentionOptions options = options_of(context);
  Tensor packed_btn = norms_.packed(projections_[0](x));
  if (config_.value_residual) {
    packed_btn = mix(packed_btn, merge_heads(context.first_values), value_residual_);
  }
  if (config_.rotary) {
    packed_btn = packed_rotary(std::move(packed_btn), H + G, heads_.key_width, angles(x, context));
  }
  const auto part = [&](Part which, Index from, Index heads) {
    return split_heads(slice(packed_btn, -1, from, part_widths_[which]), heads);
  };
  const Index key_from = part_widths_[kQuery], value_from = key_from + part_widths_[kKey];
  const bool needs_parts = context.cache != nullptr || context.fresh != nullptr;
  KeyValueHeads fresh;
  if (needs_parts) fresh.key_bsgd = part(kKey, key_from, G);
  if (needs_parts || config_.exclusive) own_values = fresh.value_bsge = part(kValue, value_from, G);
  if (context.fresh != nullptr) *context.fresh = fresh;
  if (context.cache == nullptr) {
    modifiers_.add_to(options, packed_btn.dtype(), x.size(1), x.size(1));
    return packed_attention(packed_btn, heads_, options);
  }
  const KeyValueHeads held = cached_heads(context.cache, true, heads_, options, [&] { return fresh; });
  return attend_heads(part(kQuery, 0, H), held, options);
}

/// The other cases: cross-attention, keys and values of different inputs, matrices that are not packed, and
/// norms of all heads or of heads without gains.
Tensor MultiHeadAttention::attend_apart(const Tensor& query, const Tensor& key, const Tensor& value,
                                        bool is_self, const AttentionContext& context,
                                        Tensor& own_values) const {
  AttentionOptions options = options_of(context);
  const RotaryAngles turns = angles(query, context);
  const auto turned = [&](Tensor x) { return config_.rotary ? rotary(std::move(x), turns) : x; };
  TensorList parts;  // of one product, where there is one
  if (is_self && config_.packed) parts = split(projections_[0](query), -1, part_widths_);
  const bool has_parts = !parts.empty();
  const Tensor query_bthd = turned(norms_.query(has_parts ? parts[kQuery] : project(kQuery, query)));
  const KeyValueHeads held = cached_heads(context.cache, is_self, heads_, options, [&] {
    if (!has_parts) parts = key_and_value(key, value);
    Tensor value_bse = parts.back();
    if (config_.value_residual) {
      value_bse = mix(value_bse, merge_heads(context.first_values), value_residual_);
    }
    own_values = split_heads(value_bse, heads_.groups);
    const KeyValueHeads fresh{turned(norms_.key(parts[parts.size() - 2])), own_values};
    if (context.fresh != nullptr) *context.fresh = fresh;
    return fresh;
  });
  return attend_heads(query_bthd, held, options);
}

/// Attention to another layer's keys and values, which with a cache it has put there already.
Tensor MultiHeadAttention::attend_shared(const Tensor& query, const AttentionContext& context) const {
  AttentionOptions options = options_of(context);
  Tensor query_bthd = norms_.query(project(kQuery, query));
  if (config_.rotary) query_bthd = rotary(std::move(query_bthd), angles(query, context));
  const KeyValueHeads held =
      context.cache == nullptr ? context.shared : held_heads(*context.cache, heads_, options);
  return attend_heads(query_bthd, held, options);
}

Tensor MultiHeadAttention::attend_heads(const Tensor& query_bthd, const KeyValueHeads& held,
                                        AttentionOptions& options) const {
  modifiers_.add_to(options, query_bthd.dtype(), query_bthd.size(1), held.key_bsgd.size(1));
  return scaled_dot_product_attention(query_bthd, held.key_bsgd, held.value_bsge, options);
}

TensorList MultiHeadAttention::key_and_value(const Tensor& key, const Tensor& value) const {
  if (projections_.size() == 2 && is_same_tensor(key, value))
    return split(projections_[1](key), -1, {part_widths_[kKey], part_widths_[kValue]});
  return {project(kKey, key), project(kValue, value)};
}

/// Projects `x` to one part. If its matrix holds other parts too, only this part's rows are used.
Tensor MultiHeadAttention::project(Part part, const Tensor& x) const {
  const std::size_t shared = std::min<std::size_t>(part, projections_.size() - 1);
  const Linear& input = projections_[shared];
  if (input.weight().value().size(0) == part_widths_[part]) return input(x);
  Index from = 0;
  for (std::size_t before = shared; before < part; ++before) from += part_widths_[before];
  const auto rows = [&](const Parameter& all) { return slice(all, 0, from, part_widths_[part]); };
  return linear(x, rows(input.weight()), config_.bias ? rows(input.bias()) : Tensor());
}

RotaryAngles MultiHeadAttention::angles(const Tensor& query, const AttentionContext& context) const {
  if (!config_.rotary) return {};
  return query_angles(context, query, config_.rotations, heads_.key_width);
}

void MultiHeadAttention::visit(ParameterVisitor& visitor) {
  static const std::vector<std::vector<const char*>> names = {
      {"query_key_value"}, {"query", "key_value"}, {"query", "key", "value"}};
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    const std::string name = config_.shared_keys ? "query" : names[projections_.size() - 1][i];
    visitor.child(name, projections_[i]);
    if (i + 1 == projections_.size() && i < kValue &&
        !config_.shared_keys)  // the last one holds what has no matrix of its own
      visitor.row_parts(name + ".weight",
                        {part_widths_.begin() + static_cast<std::ptrdiff_t>(i), part_widths_.end()});
  }
  norms_.visit(visitor);  // adds no level to the parameters' names
  modifiers_.visit(visitor);
  visitor.parameter("value_residual", value_residual_);
  gates_.visit(visitor);
  visitor.child("output", output_);
  visitor.child("dropout", dropout_);
  if (output_dropout_) visitor.child("output_dropout", *output_dropout_);
}

AttentionCost MultiHeadAttention::cost(const AttentionConfig& config, const AttentionCall& call) {
  CostSum sum(call);
  const double C = config.width, H = config.heads, G = config.key_heads(), D = config.key_width,
               E = config.value_width, N = sum.N, M = sum.M;
  sum.projection(N, C, H * D, config.bias);
  if (!config.shared_keys) {
    sum.projection(M, config.memory_width, G * D, config.bias);
    sum.projection(M, config.value_memory_width, G * E, config.bias);
    sum.caches(G * (D + E));
  }
  sum.projection(N, H * E, config.output_width, *config.output_bias);
  sum.attention(H, D, E);
  sum.keeps(N * (C + H * D + H * E) + M * G * (D + E));
  if (call.keys > 0) sum.keeps(M * config.memory_width);
  if (config.rotary) sum.keeps(call.queries * D);
  sum.parameters(HeadNorms::parameters(config));
  sum.keeps(HeadNorms::activations(config, N, M));
  ScoreModifiers::add_cost(config, call, sum);
  const bool mixes_packed =
      config.packed && (config.qk_norm == QkNorm::none || config.qk_norm == QkNorm::rms);
  if (config.value_residual) {
    sum.parameters(2);
    sum.keeps((mixes_packed ? N * (H * D + G * D) : 0) + 2 * M * G * E);
  }
  if (config.exclusive) sum.keeps(N * (H * E + H + G * E + G) + (mixes_packed ? N * G * E : 0));
  if (config.output_gate != OutputGate::none) {
    const double gates = config.output_gate == OutputGate::head ? H : H * E;
    sum.projection(N, C, gates, false);
    sum.keeps(N * (gates + H * E));
  }
  return sum.total();
}

}  // namespace tapeformer
