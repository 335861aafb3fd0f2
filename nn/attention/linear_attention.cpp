#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/kernels/linear_attention.h>
#include <tapeformer/autograd/ops/attention/plan.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/linear_attention.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/caches/state_cache.h>
#include <tapeformer/nn/attention/linear_attention.h>
#include <tapeformer/nn/initialization.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

constexpr double kLengthEpsilon = 1e-6;  // of a head's squared length
constexpr double kGlaDivisor = 16;       // of the log decays, which keeps them close to 0

Index own_size(const AttentionConfig& config, const char* name) {
  const auto found = config.own.find(name);
  return found != config.own.end() ? static_cast<Index>(found->second) : 0;
}

/// G of a resolved config.
Index key_heads_of(const AttentionConfig& config) { return own_size(config, "state_key_heads"); }

/// W of query_key_value.
Index packed_width(const AttentionConfig& config) {
  return 2 * key_heads_of(config) * config.key_width + config.heads * config.value_width;
}

/// n values from `first` to `last` at equal distances.
std::vector<float> spread(Index n, double first, double last) {
  std::vector<float> values;
  for (Index i = 0; i < n; ++i) {
    const double share = n > 1 ? static_cast<double>(i) / static_cast<double>(n - 1) : 0.5;
    values.push_back(static_cast<float>(first + share * (last - first)));
  }
  return values;
}

}  // namespace

std::vector<OwnField> LinearAttention::own_fields(const std::string& kind_name) {
  const Kind kind = kind_of(kind_name);
  std::vector<OwnField> fields;
  if (kind.deltas)
    fields.push_back({{"convolution_taps",
                       "K, tokens of the causal convolution of queries, keys and values; 0 for none", kSize},
                      4});
  if (kind.by_channel)
    fields.push_back(
        {{"decay_rank", "rank of the decays' projection; 0 for the width of a head's keys", kSize}, 0});
  if (kind.deltas)
    fields.push_back(
        {{"beta_scale", "beta is this times a sigmoid; 2 also lets a state change signs", kPositive}, 1});
  for (const OwnField& field : std::initializer_list<OwnField>{
           {{"state_heads", "H, heads of states and values; 0 for heads", kSize}, 0},
           {{"state_key_heads", "G, heads of queries and keys, each for H / G states; 0 for one each", kSize},
            0},
           {{"state_key_width", "D, width of a state's queries and keys; 0 for that of a head", kSize}, 0},
           {{"state_value_width", "E, width of a state's values; 0 for that of a head", kSize}, 0},
           {{"state_norm_epsilon", "epsilon of the norm of what is read from states", kPositive}, 1e-6}})
    fields.push_back(field);
  return fields;
}

LinearAttention::Kind LinearAttention::kind_of(const std::string& name) {
  if (name == "gla") return {false, false, true, false, true};
  if (name == "deltanet") return {true, false, false, false, false};
  if (name == "gated_deltanet") return {true, true, false, false, true};
  return {true, true, true, true, true};
}

void LinearAttention::complete(AttentionConfig& config) {
  const auto refuse = [&](const char* rule, const std::string& got) {
    throw Error(format("[attention] {}; got attention={}, {}; try attention=mha", rule, config.kind, got));
  };
  if (config.cross || config.memory_width != config.width)
    refuse("a state is made of the tokens that read it, and attends to no other memory",
           config.cross ? "cross=true" : format("memory_width={}", config.memory_width));
  if (config.dropout > 0) refuse("a state has no weights to drop", "dropout=" + value_text(config.dropout));
  config.packed = true;
  config.bias = false;
  config.output_bias = false;
  config.heads = or_else(own_size(config, "state_heads"), config.heads);
  config.key_width = or_else(own_size(config, "state_key_width"), config.key_width);
  config.value_width = or_else(own_size(config, "state_value_width"), config.value_width);
  const auto complete_own = [&](const char* name, Index value) {
    const auto own = config.own.find(name);
    if (own != config.own.end() && own->second == 0) own->second = static_cast<double>(value);
  };
  complete_own("state_key_heads", config.heads), complete_own("decay_rank", config.key_width);
  if (const Index G = key_heads_of(config); config.heads % G != 0)
    throw Error(
        format("[attention] the heads of a state must be a multiple of its key heads; got attention={}, "
               "state_heads={}, state_key_heads={}; try state_key_heads=0",
               config.kind, config.heads, G));
}

LinearAttention::LinearAttention(const AttentionConfig& config, Generator& random)
    : config_(config.resolved()),
      kind_(kind_of(config_.kind)),
      query_key_value_(without_bias(config_.width, packed_width(config_)), random),
      norm_({config_.value_width, config_.own.at("state_norm_epsilon")}),
      output_(without_bias(config_.heads * config_.value_width, config_.output_width), random) {
  const Index C = config_.width, H = config_.heads, D = config_.key_width, E = config_.value_width;
  const bool decays = kind_.by_channel || kind_.has_rate;
  const Index decay_count = kind_.by_channel ? H * D : H, rank = own_size(config_, "decay_rank");
  if (const Index taps = own_size(config_, "convolution_taps"); taps > 0)
    convolution_.emplace(ShortConvolutionConfig{packed_width(config_), taps});
  if (kind_.deltas) beta_.emplace(without_bias(C, H), random);
  if (decays) {
    if (kind_.by_channel) decay_down_.emplace(without_bias(C, rank), random);
    decay_up_.emplace(without_bias(kind_.by_channel ? rank : C, decay_count), random);
    std::vector<float> offsets(static_cast<std::size_t>(decay_count), -2.0F);
    if (kind_.has_rate) {
      std::vector<float> steps = spread(H, std::log(0.001), std::log(0.1));
      for (float& step : steps) step = std::log(std::expm1(std::exp(step)));  // the inverse of softplus
      for (std::size_t i = 0; i < offsets.size(); ++i)
        offsets[i] = steps[i / static_cast<std::size_t>(decay_count / H)];
      decay_rate_ = Parameter(Tensor::from(spread(H, 0, std::log(16))));
    }
    decay_offset_ = Parameter(Tensor::from(offsets));
  }
  if (kind_.low_rank_gate) gate_down_.emplace(without_bias(C, E), random);
  if (kind_.gates) gate_.emplace(without_bias(kind_.low_rank_gate ? E : C, H * E), random);
  const auto there = [](std::optional<Linear>& layer) { return layer ? &*layer : nullptr; };
  for (Linear* layer : {&query_key_value_, there(beta_), there(decay_down_), there(decay_up_),
                        there(gate_down_), there(gate_), &output_}) {
    if (layer != nullptr) xavier_uniform(layer->weight(), random);
  }
}

void LinearAttention::check_call(const Tensor& query, const Tensor& memory,
                                 const AttentionContext& context) const {
  check_inputs("linear_attention", query, memory, context.cache);
  check_only_causal("linear_attention", "a state takes in every token, so the only mask is the causal one",
                    query, memory, context);
  if (context.weights != nullptr)
    throw Error(
        "[linear_attention] a state has no attention weights; got a tensor for them; try attention=mha");
}

Tensor LinearAttention::operator()(const Tensor& query, const Tensor& memory,
                                   const AttentionContext& context) const {
  check_call(query, memory, context);
  auto* cache = dynamic_cast<StateCache*>(context.cache);
  if (context.cache != nullptr && cache == nullptr)
    throw Error("[linear_attention] the cache must hold a state; try make_cache() with cache_widths()");
  const Index B = query.size(0), T = query.size(1), H = config_.heads, D = config_.key_width,
              E = config_.value_width, G = key_heads_of(config_);
  LinearAttentionOptions options;
  const Tensor before = cache != nullptr ? cache->state(B) : Tensor();
  if (before.defined()) options.state = before.alias({B, H, D, E});
  Tensor last_bhde;
  if (cache != nullptr) options.last_state = &last_bhde;

  Tensor packed_btn = query_key_value_(query);
  if (cache != nullptr) StateCache::require_unrecorded(packed_btn);  // before the convolution's cache changes
  if (convolution_)
    packed_btn = silu(cache != nullptr ? (*convolution_)(packed_btn, cache->convolution())
                                       : (*convolution_)(packed_btn));
  const TensorList parts = split(packed_btn, 2, {G * D, G * D, H * E});
  Tensor query_btgd = split_heads(parts[0], G), key_btgd = split_heads(parts[1], G);
  if (kind_.deltas) {
    // x / |x| is rms_norm(x) / sqrt(D): for queries by the scale, for keys by a gain.
    const auto width = static_cast<double>(D);
    const Tensor gain_d = Tensor::full({D}, 1 / std::sqrt(width), query.dtype(), query.device());
    query_btgd = rms_norm(query_btgd, {}, kLengthEpsilon / width);
    key_btgd = rms_norm(key_btgd, gain_d, kLengthEpsilon / width);
    options.scale = 1 / width;
    const double scale = config_.own.at("beta_scale");
    options.beta = sigmoid((*beta_)(query));
    if (scale != 1) options.beta = options.beta * scale;
  }
  if (decay_up_) {
    const Tensor decay = log_decay(query);
    options.log_decay = kind_.by_channel ? reshape(decay, {B, T, H, D}) : decay;
  }
  const Tensor heads_bthe = linear_attention(repeated_heads(query_btgd, H), repeated_heads(key_btgd, H),
                                             split_heads(parts[2], H), options);
  if (cache != nullptr) cache->advance(reshape(last_bhde, {B, H * D * E}), T);
  return output_(gated(norm_(heads_bthe), query));
}

/// [B, T, H D] or [B, T, H], in the wide type.
Tensor LinearAttention::log_decay(const Tensor& x) const {
  const DType type = wide(x.dtype());
  const Tensor inputs = decay_down_ ? (*decay_down_)(x) : x;
  const Tensor steps = softplus(cast((*decay_up_)(inputs), type) + cast(decay_offset_.used(), type));
  if (!kind_.has_rate) return steps * (-1 / kGlaDivisor);
  const Tensor rate_h = -exp(cast(decay_rate_.used(), type));
  const Index B = x.size(0), T = x.size(1), H = config_.heads;
  return reshape(reshape(steps, {B, T, H, steps.size(2) / H}) * reshape(rate_h, {H, 1}),
                 {B, T, steps.size(2)});
}

/// The heads side by side, each component times its gate.
Tensor LinearAttention::gated(const Tensor& heads, const Tensor& x) const {
  const Tensor merged_btn = merge_heads(heads);
  if (!gate_) return merged_btn;
  const Tensor gate_btn = (*gate_)(gate_down_ ? (*gate_down_)(x) : x);
  return merged_btn * (kind_.low_rank_gate ? sigmoid(gate_btn) : silu(gate_btn));
}

void LinearAttention::visit(ParameterVisitor& visitor) {
  visitor.child("query_key_value", query_key_value_);
  const Index keys = key_heads_of(config_) * config_.key_width, values = config_.heads * config_.value_width;
  visitor.row_parts("query_key_value.weight", {keys, keys, values});
  if (convolution_) visitor.child("convolution", *convolution_);
  if (beta_) visitor.child("beta", *beta_);
  if (decay_down_) visitor.child("decay_down", *decay_down_);
  if (decay_up_) visitor.child("decay_up", *decay_up_);
  visitor.parameter("decay_offset", decay_offset_);
  visitor.parameter("decay_rate", decay_rate_);
  if (gate_down_) visitor.child("gate_down", *gate_down_);
  if (gate_) visitor.child("gate", *gate_);
  visitor.child("norm", norm_);
  visitor.child("output", output_);
}

void LinearAttention::add_cost(const AttentionConfig& config, CostSum& sum) {
  const Kind kind = kind_of(config.kind);
  const double C = config.width, H = config.heads, D = config.key_width, E = config.value_width, N = sum.N,
               G = key_heads_of(config), P = packed_width(config), K = own_size(config, "convolution_taps"),
               rank = own_size(config, "decay_rank"), decays = kind.by_channel ? H * D : H;
  sum.projection(N, C, P, false);
  sum.keeps(N * C + N * (2 * (kind.deltas ? G : H) * D + H * E));
  if (K > 0) {
    sum.parameters(K * P);
    sum.keeps(2 * N * P);
  }
  if (kind.deltas) {
    sum.projection(N, C, H, false);
    sum.keeps(2 * N * H * D + D + (config.own.at("beta_scale") != 1 ? 2 : 1) * N * H);
    sum.keeps_wide(2 * N * G);
  }
  if (kind.by_channel || kind.has_rate) {
    if (kind.by_channel) sum.projection(N, C, rank, false), sum.keeps(N * rank);
    sum.projection(N, kind.by_channel ? rank : C, decays, false);
    sum.parameters(decays);
    sum.keeps_wide(2 * N * decays);
    if (kind.has_rate) sum.parameters(H), sum.keeps_wide(N * decays + 2 * H);
  }
  if (kind.low_rank_gate) sum.projection(N, C, E, false), sum.keeps(N * E);
  if (kind.gates) {
    sum.projection(N, kind.low_rank_gate ? E : C, H * E, false);
    sum.keeps((kind.low_rank_gate ? 2 : 3) * N * H * E);
  }
  kernels::LinearAttention sizes;
  sizes.length = sum.call.queries, sizes.key_width = config.key_width;
  sum.product(N, (kind.deltas ? 3 : 2) * H * D * E);
  sum.keeps_wide(static_cast<double>(sum.call.batch * sizes.segments()) * H * D * E + N * H);
  sum.parameters(E);
  sum.keeps(2 * N * H * E);
  sum.projection(N, H * E, config.output_width, false);
  sum.caches_row(H * D * E, std::max(K - 1, 0.0) * P);
}

}  // namespace tapeformer
