#include <tapeformer/autograd/ops/additive_attention.h>
#include <tapeformer/autograd/ops/attention/sparse_attention.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/examples/gradcheck/layer_case.h>
#include <tapeformer/nn/attention/attention_sublayer.h>
#include <tapeformer/nn/attention/basic/concatenated_heads.h>
#include <tapeformer/nn/attention/basic/self_attention.h>
#include <tapeformer/nn/attention/basic/single_head.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/nn/experts.h>

#include <algorithm>
#include <limits>

namespace tapeformer {
namespace {

/// A layer to be checked in the modes that it supports.
struct CheckedLayer {
  std::string name;
  std::function<bool(const AttentionMode&)> takes;
  bool masks_by_head;  ///< a mask may differ from head to head
  std::function<CheckCase(CheckSetting&)> make;
};

bool all_masks(const AttentionMode& mode) { return !mode.positions; }
bool only_plain(const AttentionMode& mode) { return !mode.cross && mode.plain; }
bool only_self(const AttentionMode& mode) { return !mode.cross && !mode.positions; }
bool without_masks(const AttentionMode& mode) { return mode.plain; }
bool everything(const AttentionMode&) { return true; }
bool self_with_positions(const AttentionMode& mode) { return !mode.cross; }
bool only_causal(const AttentionMode& mode) { return mode.name == "self causal"; }

Index memory_width(const CheckSetting& setting) {
  return setting.cross ? setting.sizes.memory_width : setting.sizes.width;
}

AttentionOptions options_of(const CheckSetting& setting) {
  AttentionOptions options(setting.context);
  options.dropout = setting.dropout;
  options.dropout_key.seed = setting.sizes.seed;
  return options;
}

Tensor random_queries(CheckSetting& setting, Index width) {
  return setting.normal({setting.batch, setting.queries, setting.sizes.heads, width});
}
Tensor random_keys(CheckSetting& setting, Index width) {
  return setting.normal({setting.batch, setting.keys, setting.sizes.groups, width});
}

template <Tensor (*attention)(const Tensor&, const Tensor&, const Tensor&, const AttentionOptions&)>
CheckCase attention_case(CheckSetting& setting) {
  const CheckSizes& sizes = setting.sizes;
  const Tensor query = random_queries(setting, sizes.head_width),
               key = random_keys(setting, sizes.head_width), value = random_keys(setting, sizes.value_width);
  return operation_case(setting, {{"query", query}, {"key", key}, {"value", value}},
                        [=, options = options_of(setting)] { return attention(query, key, value, options); });
}

/// Query, key and value are one tensor.
CheckCase one_tensor_case(CheckSetting& setting) {
  const Tensor x = random_queries(setting, setting.sizes.head_width);
  return operation_case(setting, {{"x", x}}, [x, options = options_of(setting)] {
    return scaled_dot_product_attention(x, x, x, options);
  });
}

/// Key and value, and in self-attention the query, share their memory without the tape's knowledge. The value
/// has another shape.
CheckCase aliases_case(CheckSetting& setting) {
  const CheckSizes& sizes = setting.sizes;
  const Shape shape{setting.batch, setting.keys, sizes.heads, sizes.head_width};
  const Tensor query = random_queries(setting, sizes.head_width);
  const Tensor key = setting.cross ? setting.normal(shape) : query.alias(shape);
  const Tensor value = key.alias({setting.batch, setting.keys, sizes.heads * sizes.head_width});
  return operation_case(setting, {{"query", query}, {"key", key}, {"value", value}},
                        [=, options = options_of(setting)] {
                          return scaled_dot_product_attention(query, key, reshape(value, shape), options);
                        });
}

template <Tensor (*attention)(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                              const AttentionOptions&)>
CheckCase additive_case(CheckSetting& setting) {
  const CheckSizes& sizes = setting.sizes;
  const Tensor query = random_queries(setting, sizes.hidden_width),
               key = random_keys(setting, sizes.hidden_width),
               value = random_keys(setting, sizes.value_width),
               weight = setting.normal({sizes.heads, sizes.hidden_width});
  return operation_case(
      setting, {{"query", query}, {"key", key}, {"value", value}, {"weight", weight}},
      [=, options = options_of(setting)] { return attention(query, key, value, weight, options); });
}

CheckCase packed_case(CheckSetting& setting) {
  const CheckSizes& sizes = setting.sizes;
  const PackedHeads heads{sizes.heads, sizes.groups, sizes.head_width, sizes.value_width};
  const Tensor packed = setting.normal({setting.batch, setting.queries, heads.width()});
  return operation_case(setting, {{"packed", packed}}, [=, options = options_of(setting)] {
    return packed_attention(packed, heads, options);
  });
}

constexpr Index kBlock = 2;

/// The difference of the two largest scores of the blocks among which query t, of [D], chooses.
double gap_of_choice(const std::vector<double>& query, const double* keys, Index t, Index key_stride) {
  std::vector<double> scores;
  for (Index block = 0; (block + 1) * kBlock <= t + 1; ++block) {
    if (block == t / kBlock) continue;
    double score = 0;
    for (Index s = block * kBlock; s < (block + 1) * kBlock; ++s)
      for (std::size_t d = 0; d < query.size(); ++d)
        score -= query[d] * keys[s * key_stride + static_cast<Index>(d)];
    scores.push_back(score / kBlock);
  }
  std::sort(scores.begin(), scores.end());
  return scores.size() < 2 ? std::numeric_limits<double>::infinity() : scores[1] - scores[0];
}

/// Mixture of block attention. Its gradient jumps where the choice changes, so each query is drawn again
/// until its choice is not close.
CheckCase blocks_case(CheckSetting& setting) {
  constexpr double kLeastGap = 0.05;  // a step changes scores by some thousandths
  const CheckSizes& sizes = setting.sizes;
  const Tensor key = random_keys(setting, sizes.head_width), value = random_keys(setting, sizes.value_width);
  const std::vector<double> keys = key.to(Device::cpu()).to(DType::f64).to_vector<double>();
  const Index T = setting.queries, H = sizes.heads, G = sizes.groups, D = sizes.head_width;
  TensorList rows;
  for (Index row = 0; row < setting.batch * T * H; ++row) {
    const Index b = row / (T * H), t = row / H % T, group = row % H / (H / G);
    const double* const of_row = keys.data() + (b * T * G + group) * D;
    const Tensor query = Tensor::empty({1, D}, DType::f64, Device::cpu());
    do setting.random.fill_normal(query, 0, 1);
    while (gap_of_choice(query.to_vector<double>(), of_row, t, G * D) < kLeastGap);
    rows.push_back(query);
  }
  const Tensor query = reshape(concat(rows, 0), {setting.batch, T, H, D}).to(setting.type).to(sizes.device);
  AttentionOptions options(setting.context);
  options.block_size = kBlock, options.block_top_k = 2;
  return operation_case(setting, {{"query", query}, {"key", key}, {"value", value}},
                        [=] { return scaled_dot_product_attention(query, key, value, options); });
}

/// Attention to keys that an indexer has chosen; the choice stays as it is.
CheckCase chosen_keys_case(CheckSetting& setting) {
  const CheckSizes& sizes = setting.sizes;
  const Index B = setting.batch, T = setting.queries, S = setting.keys, width = sizes.head_width;
  const IndexHeads index{setting.normal({B, T, sizes.heads, width}), setting.normal({B, S, width}),
                         setting.normal({B, T, sizes.heads})};
  const Tensor chosen = choose_keys(index, 2, setting.context),
               query = setting.normal({B, T, sizes.heads, width + sizes.value_width}),
               latents = setting.normal({B, S, width + sizes.value_width});
  const SparseOptions options{sizes.value_width, 0.4};
  return operation_case(setting, {{"query", query}, {"latents", latents}},
                        [=] { return sparse_attention(query, latents, chosen, options); });
}

CheckCase weightless_case(CheckSetting& setting) {
  const Streams streams = streams_of(setting);
  return operation_case(setting, streams.inputs, [x = streams.query] { return self_attention(x, 0.4); });
}

CheckCase matrix_case(CheckSetting& setting) {
  const CheckSizes& sizes = setting.sizes;
  const auto layer = std::make_shared<MatrixSelfAttention>(
      MatrixSelfAttentionConfig{sizes.width, sizes.head_width, sizes.value_width}, setting.random);
  const Streams streams = streams_of(setting);
  return module_case(setting, layer, streams.inputs,
                     [x = streams.query](const MatrixSelfAttention& of) { return of(x); });
}

SingleHeadConfig single_head(const CheckSetting& setting, bool causal) {
  const CheckSizes& sizes = setting.sizes;
  return {sizes.width, memory_width(setting), sizes.head_width, sizes.value_width,
          0,           setting.dropout,       causal,           true};
}

CheckCase single_head_case(CheckSetting& setting, bool causal) {
  const SingleHeadConfig config = single_head(setting, causal);
  return layer_case(setting, std::make_shared<SingleHeadAttention>(config, setting.random));
}

CheckCase concatenated_case(CheckSetting& setting) {
  const ConcatenatedHeadsConfig config{single_head(setting, false), setting.sizes.heads, true};
  return layer_case(setting, std::make_shared<ConcatenatedHeads>(config, setting.random));
}

AttentionConfig config_of(const CheckSetting& setting, const AttentionKind& kind) {
  AttentionConfig config = attention_config(setting.sizes, kind);
  config.memory_width = memory_width(setting);
  config.dropout = setting.dropout;
  config.cross = setting.cross;
  config.packed = false;
  if (kind.uses("rotary_width")) config.rotary_width = 2;
  if (kind.uses("lambda_initial")) {  // a narrow difference may be so short that its norm divides by almost 0
    config.lambda_initial = 0.2;      // as in a first layer
    config.value_width += 7;
  }
  return config;
}

/// `adjust` sets the options that a row of the table checks.
std::function<CheckCase(CheckSetting&)> kind_with(const std::string& kind,
                                                  const std::function<void(AttentionConfig&)>& adjust = {}) {
  return [kind, adjust](CheckSetting& setting) {
    const AttentionKind& row = attention_kind(kind);
    AttentionConfig config = config_of(setting, row);
    if (row.uses("nsa_span"))  // small blocks, of which only the two that are always chosen fit into top_k
      config.own = {
          {"nsa_span", 2}, {"nsa_stride", 1}, {"nsa_block", 2}, {"nsa_top_k", 2}, {"nsa_window", 2}};
    if (adjust) adjust(config);
    CheckCase result = layer_case(setting, std::shared_ptr<Attention>(make_attention(config, setting.random)),
                                  config.sequence_first);
    // The norm of a short vector divides rounding errors by a small number.
    if ((row.can & kHasState) || row.uses("lambda_initial")) result.magnifies = 100;
    return result;
  };
}

/// Keys and values made of different inputs.
CheckCase three_inputs_case(CheckSetting& setting) {
  AttentionConfig config = config_of(setting, attention_kind("mha"));
  config.value_memory_width = config.memory_width + 2;
  auto layer = std::make_shared<MultiHeadAttention>(config, setting.random);
  Streams streams = streams_of(setting);
  const Tensor value = setting.normal({setting.batch, setting.keys, config.value_memory_width});
  streams.inputs.emplace_back("values", value);
  return module_case(setting, layer, streams.inputs,
                     [=, context = setting.context](const MultiHeadAttention& of) {
                       return of(streams.query, streams.memory, value, context);
                     });
}

/// Keys and values of another layer.
CheckCase shared_keys_case(CheckSetting& setting) {
  AttentionConfig config = config_of(setting, attention_kind("gqa"));
  config.shared_keys = true;
  auto layer = std::make_shared<MultiHeadAttention>(config, setting.random);
  Streams streams = streams_of(setting);
  AttentionContext context = setting.context;
  context.shared = {setting.normal({setting.batch, setting.keys, config.groups, config.key_width}),
                    setting.normal({setting.batch, setting.keys, config.groups, config.value_width})};
  streams.inputs.emplace_back("shared_keys", context.shared.key_bsgd);
  streams.inputs.emplace_back("shared_values", context.shared.value_bsge);
  return module_case(
      setting, layer, streams.inputs,
      [x = streams.query, context](const MultiHeadAttention& of) { return of(x, x, context); });
}

void low_rank_queries(AttentionConfig& config) {
  config.query_latent_width = config.latent_width - config.latent_width / 3;
}

CheckCase sublayer_case(CheckSetting& setting) {
  auto attention = make_attention(config_of(setting, attention_kind("mha")), setting.random);
  const AttentionSublayerConfig config{setting.sizes.width, setting.dropout};
  return layer_case(setting,
                    std::make_shared<AttentionSublayer>(std::move(attention), config, setting.random));
}

/// True if the token's second and third choice are so close that a step of the differences may exchange them.
bool is_close_choice(Experts& layer, const Tensor& token_1c) {
  constexpr double kLeastGap = 0.05;                         // a step changes logits by some thousandths
  const std::vector<Parameter> router = layer.parameters();  // its weight, then its bias
  const Tensor logits_1e = matmul(token_1c, transposed(router[0].value())) + router[1].value();
  std::vector<double> logits = logits_1e.to(Device::cpu()).to(DType::f64).to_vector<double>();
  std::sort(logits.begin(), logits.end());
  return logits[1] - logits[0] < kLeastGap;
}

/// A mixture of experts with biases. Its gradient jumps where the choice changes, so each token is drawn
/// again until its choice is not close.
CheckCase experts_case(CheckSetting& setting) {
  const Index width = setting.sizes.width;
  auto layer = std::make_shared<Experts>(FeedForwardConfig{width, 3, Unary::silu, 0, true, true},
                                         ExpertsConfig{3, 2}, setting.random);
  const Tensor x = setting.normal({setting.batch, setting.queries, width});
  CheckCase result = module_case(setting, layer, {{"x", x}}, [x](const Experts& of) { return of(x); });
  const Tensor x_nc = reshape(x, {-1, width});
  TensorList tokens;
  for (Index n = 0; n < x_nc.size(0); ++n) {
    tokens.push_back(slice(x_nc, 0, n, 1));
    while (is_close_choice(*layer, tokens.back())) setting.random.fill_normal(tokens.back(), 0, 1);
  }
  x.copy_from(reshape(concat(tokens, 0), x.shape()));
  return result;
}

/// Every kind in each of its forms, and rotated by positions where it can be.
void add_kinds(std::vector<CheckedLayer>& layers) {
  for (const AttentionKind& kind : attention_kinds()) {
    std::string title = kind.title;
    for (const char separator : {'-', ' '}) std::replace(title.begin(), title.end(), separator, '_');
    const bool always_rotates = kind.uses("rotary_width");
    for (const AttentionForm& form : kind.forms) {
      layers.push_back({title + "_" + form.name, always_rotates ? everything : all_masks, true,
                        kind_with(kind.name, form.choose)});
    }
    const auto takes = kind.can & kOnlyCausal ? only_causal : all_masks;
    if (kind.forms.empty()) layers.push_back({title, takes, true, kind_with(kind.name)});
    if (always_rotates || !(kind.can & kCanRotate)) continue;
    layers.push_back({title + "_rotary", kind.can & kOnlyCausal ? takes : self_with_positions, true,
                      kind_with(kind.name, [](AttentionConfig& c) { c.rotary = true; })});
  }
}

/// Every piece of multi-head attention.
void add_pieces(std::vector<CheckedLayer>& layers) {
  for (const PieceCase& piece : AttentionPieces::cases()) {
    if (piece.is_discrete) continue;  // see block_attention
    const auto make = [piece](CheckSetting& setting) {
      const AttentionConfig sizes = attention_config(setting.sizes, attention_kind(piece.kind));
      setting.context.first_values =
          setting.normal({setting.batch, setting.keys, sizes.key_heads(), sizes.value_width});
      return kind_with(piece.kind, piece.choose)(setting);
    };
    layers.push_back({piece.name, piece.only_self ? self_with_positions : all_masks, true, make});
  }
}

std::vector<CheckedLayer> checked_layers() {
  std::vector<CheckedLayer> layers = {
      {"scaled_dot_product", all_masks, true, attention_case<scaled_dot_product_attention>},
      {"scaled_dot_product_one_tensor", only_self, true, one_tensor_case},
      {"scaled_dot_product_aliases", all_masks, true, aliases_case},
      {"composed", all_masks, true, attention_case<composed_attention>},
      {"additive_scores", all_masks, true, additive_case<additive_attention>},
      {"additive_scores_composed", all_masks, true, additive_case<composed_additive_attention>},
      {"block_attention", only_causal, true, blocks_case},
      {"sparse_attention", only_causal, true, chosen_keys_case},
      {"packed_projection", only_self, true, packed_case},
      {"weightless", only_plain, false, weightless_case},
      {"matrices", only_plain, false, matrix_case},
      {"single_head", all_masks, false, [](CheckSetting& s) { return single_head_case(s, false); }},
      {"causal", all_masks, false, [](CheckSetting& s) { return single_head_case(s, true); }},
      {"concatenated_heads", all_masks, false, concatenated_case},
  };
  add_kinds(layers);
  add_pieces(layers);
  const auto add = [&](const char* name, const auto& takes, const auto& make) {
    layers.push_back({name, takes, true, make});
  };
  add("multi_head_packed", only_self, kind_with("mha", [](AttentionConfig& c) { c.packed = true; }));
  add("multi_head_three_inputs", all_masks, three_inputs_case);
  add("multi_head_sequence_first", all_masks, kind_with("mha", [](AttentionConfig& c) {
        c.sequence_first = true;
        c.output_dropout = c.dropout;
        c.bias = false;
      }));
  add("grouped_query_shared_keys", only_self, shared_keys_case);
  add("multi_head_output_width", without_masks,
      kind_with("mha", [](AttentionConfig& c) { c.output_width = c.width + 3; }));
  add("latent_low_rank_queries", everything, kind_with("mla", low_rank_queries));
  add("latent_absorbed_no_norm", everything, kind_with("mla", [](AttentionConfig& c) {
        low_rank_queries(c);
        c.form = LatentForm::absorbed;
        c.norm = false;
      }));
  add("gated_linear_low_rank", only_causal,
      kind_with("gla", [](AttentionConfig& c) { c.own["decay_rank"] = 2; }));
  add("kimi_delta_no_convolution", only_causal,
      kind_with("kda", [](AttentionConfig& c) { c.own["convolution_taps"] = 0; }));
  add("residual_post_norm", all_masks, sublayer_case);
  add("experts", only_plain, experts_case);
  return layers;
}

}  // namespace

AttentionConfig attention_config(const CheckSizes& sizes, const AttentionKind& kind) {
  AttentionConfig config;
  config.kind = kind.name;
  config.width = sizes.width, config.heads = sizes.heads;
  config.key_width = kind.name == "additive" ? sizes.hidden_width : sizes.head_width;
  config.value_width = sizes.value_width;
  if (kind.uses("groups")) config.groups = sizes.groups;
  if (kind.uses("latent_width")) config.latent_width = sizes.latent_width;
  return config;
}

std::vector<AttentionCheck> attention_checks() {
  std::vector<AttentionCheck> checks;
  for (const CheckedLayer& layer : checked_layers()) {
    for (const AttentionMode& mode : attention_modes()) {
      if (!layer.takes(mode)) continue;
      checks.push_back({layer.name, mode, [layer, mode](const CheckSizes& sizes, DType type) {
                          CheckSetting setting =
                              setting_of(mode, sizes, layer.masks_by_head ? sizes.heads : 1, type);
                          return layer.make(setting);
                        }});
    }
  }
  return checks;
}

}  // namespace tapeformer
