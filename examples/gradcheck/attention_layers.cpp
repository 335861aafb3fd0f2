#include <tapeformer/autograd/ops/additive_attention.h>
#include <tapeformer/examples/gradcheck/attention_layers.h>
#include <tapeformer/nn/attention/additive.h>
#include <tapeformer/nn/attention/attention_sublayer.h>
#include <tapeformer/nn/attention/concatenated_heads.h>
#include <tapeformer/nn/attention/grouped_query.h>
#include <tapeformer/nn/attention/latent.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/nn/attention/self_attention.h>
#include <tapeformer/nn/attention/single_head.h>

namespace tapeformer {
namespace {

Index memory_width(const CheckSetting& setting) {
  return setting.cross ? setting.sizes.memory_width : setting.sizes.width;
}

// --- which modes a layer takes ---------------------------------------------------------------------------

bool all_masks(const AttentionMode& mode) { return !mode.positions; }
bool only_plain(const AttentionMode& mode) { return !mode.cross && !mode.wants_context; }
bool only_self(const AttentionMode& mode) { return !mode.cross && !mode.positions; }
bool without_masks(const AttentionMode& mode) { return !mode.wants_context; }
bool everything(const AttentionMode&) { return true; }
bool self_with_positions(const AttentionMode& mode) { return !mode.cross; }

// --- the operations --------------------------------------------------------------------------------------

using AttentionFunction = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const AttentionOptions&);

AttentionOptions options_of(const CheckSetting& setting) {
  AttentionOptions options(setting.context);
  options.dropout = setting.dropout;
  options.dropout_key.seed = setting.sizes.seed;
  return options;
}

CheckCase attention_case(CheckSetting& setting, AttentionFunction attention) {
  const CheckSizes& sizes = setting.sizes;
  const Tensor query = setting.normal({setting.batch, setting.queries, sizes.heads, sizes.head_width});
  const Tensor key = setting.normal({setting.batch, setting.keys, sizes.groups, sizes.head_width});
  const Tensor value = setting.normal({setting.batch, setting.keys, sizes.groups, sizes.value_width});
  return operation_case(setting, {{"query", query}, {"key", key}, {"value", value}},
                        [=, options = options_of(setting)] { return attention(query, key, value, options); });
}

using AdditiveFunction = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                    const AttentionOptions&);

CheckCase additive_case(CheckSetting& setting, AdditiveFunction attention) {
  const CheckSizes& sizes = setting.sizes;
  const Tensor query = setting.normal({setting.batch, setting.queries, sizes.heads, sizes.hidden_width});
  const Tensor key = setting.normal({setting.batch, setting.keys, sizes.groups, sizes.hidden_width});
  const Tensor value = setting.normal({setting.batch, setting.keys, sizes.groups, sizes.value_width});
  const Tensor weight = setting.normal({sizes.heads, sizes.hidden_width});
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

// --- the layers ------------------------------------------------------------------------------------------

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

SingleHeadConfig single_head(const CheckSetting& setting) {
  SingleHeadConfig config;
  config.width = setting.sizes.width;
  config.memory_width = memory_width(setting);
  config.key_width = setting.sizes.head_width;
  config.value_width = setting.sizes.value_width;
  config.dropout = setting.dropout;
  config.bias = true;
  return config;
}

template <class Layer>
CheckCase single_head_case(CheckSetting& setting) {
  return layer_case(setting, std::make_shared<Layer>(single_head(setting), setting.random));
}

CheckCase concatenated_case(CheckSetting& setting) {
  ConcatenatedHeadsConfig config;
  config.head = single_head(setting);
  config.heads = setting.sizes.heads;
  config.output = true;
  return layer_case(setting, std::make_shared<ConcatenatedHeads>(config, setting.random));
}

MultiHeadConfig multi_head(const CheckSetting& setting) {
  MultiHeadConfig config;
  config.width = setting.sizes.width;
  config.heads = setting.sizes.heads;
  config.memory_width = memory_width(setting);
  config.key_width = setting.sizes.head_width;
  config.value_width = setting.sizes.value_width;
  config.dropout = setting.dropout;
  return config;
}

/// `adjust` sets the options that a row of the table is about.
template <class Adjust>
std::function<CheckCase(CheckSetting&)> multi_head_with(const Adjust& adjust) {
  return [adjust](CheckSetting& setting) {
    MultiHeadConfig config = multi_head(setting);
    adjust(config);
    return layer_case(setting, std::make_shared<MultiHeadAttention>(config, setting.random),
                      config.sequence_first);
  };
}

/// Keys and values made of different inputs.
CheckCase three_inputs_case(CheckSetting& setting) {
  MultiHeadConfig config = multi_head(setting);
  config.value_memory_width = config.memory_width + 2;
  auto layer = std::make_shared<MultiHeadAttention>(config, setting.random);
  const Streams streams = streams_of(setting);
  const Tensor value = setting.normal({setting.batch, setting.keys, config.value_memory_width});
  NamedTensors inputs = streams.inputs;
  inputs.emplace_back("values", value);
  return module_case(setting, layer, inputs, [=, context = setting.context](const MultiHeadAttention& of) {
    return of(streams.query, streams.memory, value, context);
  });
}

GroupedQueryConfig grouped_query(const CheckSetting& setting) {
  GroupedQueryConfig config;
  config.width = setting.sizes.width;
  config.heads = setting.sizes.heads;
  config.groups = setting.sizes.groups;
  config.memory_width = memory_width(setting);
  config.key_width = setting.sizes.head_width;
  config.value_width = setting.sizes.value_width;
  config.dropout = setting.dropout;
  config.cross = setting.cross;
  return config;
}

template <class Adjust>
std::function<CheckCase(CheckSetting&)> grouped_query_with(const Adjust& adjust) {
  return [adjust](CheckSetting& setting) {
    GroupedQueryConfig config = grouped_query(setting);
    adjust(config);
    return layer_case(setting, std::make_shared<GroupedQueryAttention>(config, setting.random));
  };
}

/// The other convention of pairs, on a part of each head, with Llama 3's frequencies.
void half_split(GroupedQueryConfig& config) {
  config.rotary = true;
  config.rotations.layout = RotaryLayout::half_split;
  config.rotations.width = config.key_width - config.key_width / 4 * 2;
  config.rotations.base = 100;
  config.rotations.factor = 4;
  config.rotations.original_context = 16;
}

template <class Adjust>
std::function<CheckCase(CheckSetting&)> latent_with(const Adjust& adjust) {
  return [adjust](CheckSetting& setting) {
    LatentConfig config;
    config.width = setting.sizes.width;
    config.heads = setting.sizes.heads;
    config.memory_width = memory_width(setting);
    config.key_width = setting.sizes.head_width;
    config.value_width = setting.sizes.value_width;
    config.latent_width = setting.sizes.latent_width;
    config.rotary_width = setting.cross ? 0 : 2;
    config.dropout = setting.dropout;
    adjust(config);
    return layer_case(setting, std::make_shared<LatentAttention>(config, setting.random));
  };
}

CheckCase additive_layer_case(CheckSetting& setting) {
  AdditiveConfig config;
  config.width = setting.sizes.width;
  config.heads = setting.sizes.heads;
  config.memory_width = memory_width(setting);
  config.hidden_width = setting.sizes.hidden_width;
  config.value_width = setting.sizes.value_width;
  config.dropout = setting.dropout;
  return layer_case(setting, std::make_shared<AdditiveAttention>(config, setting.random));
}

CheckCase sublayer_case(CheckSetting& setting) {
  auto attention = std::make_unique<MultiHeadAttention>(multi_head(setting), setting.random);
  AttentionSublayerConfig config;
  config.width = setting.sizes.width;
  config.dropout = setting.dropout;
  return layer_case(setting,
                    std::make_shared<AttentionSublayer>(std::move(attention), config, setting.random));
}

}  // namespace

std::vector<CheckedLayer> checked_layers() {
  const auto operation = [](AttentionFunction attention) {
    return [attention](CheckSetting& setting) { return attention_case(setting, attention); };
  };
  const auto additive = [](AdditiveFunction attention) {
    return [attention](CheckSetting& setting) { return additive_case(setting, attention); };
  };
  return {
      {"scaled_dot_product", all_masks, true, operation(&scaled_dot_product_attention)},
      {"composed", all_masks, true, operation(&composed_attention)},
      {"additive_scores", all_masks, true, additive(&additive_attention)},
      {"additive_scores_composed", all_masks, true, additive(&composed_additive_attention)},
      {"packed_projection", only_self, true, packed_case},
      {"weightless", only_plain, false, weightless_case},
      {"matrices", only_plain, false, matrix_case},
      {"single_head", all_masks, false, single_head_case<SingleHeadAttention>},
      {"causal", all_masks, false, single_head_case<CausalAttention>},
      {"concatenated_heads", all_masks, false, concatenated_case},
      {"multi_head", all_masks, true, multi_head_with([](MultiHeadConfig&) {})},
      {"multi_head_packed", only_self, true, multi_head_with([](MultiHeadConfig& c) { c.packed = true; })},
      {"multi_head_rotary", self_with_positions, true,
       multi_head_with([](MultiHeadConfig& c) { c.rotary = true; })},
      {"multi_head_three_inputs", all_masks, true, three_inputs_case},
      {"multi_head_sequence_first", all_masks, true, multi_head_with([](MultiHeadConfig& c) {
         c.sequence_first = true;
         c.output_dropout = c.dropout;
         c.bias = c.output_bias = false;
       })},
      {"multi_head_output_width", without_masks, true,
       multi_head_with([](MultiHeadConfig& c) { c.output_width = c.width + 3; })},
      {"grouped_query", all_masks, true, grouped_query_with([](GroupedQueryConfig&) {})},
      {"grouped_query_rotary", self_with_positions, true,
       grouped_query_with([](GroupedQueryConfig& c) { c.rotary = true; })},
      {"grouped_query_half_split", self_with_positions, true, grouped_query_with(half_split)},
      {"multi_query", all_masks, true, grouped_query_with([](GroupedQueryConfig& c) { c.groups = 1; })},
      {"multi_query_rotary", self_with_positions, true, grouped_query_with([](GroupedQueryConfig& c) {
         c.groups = 1;
         c.rotary = true;
       })},
      {"latent_naive", everything, true, latent_with([](LatentConfig& c) { c.form = LatentForm::naive; })},
      {"latent_absorbed", everything, true,
       latent_with([](LatentConfig& c) { c.form = LatentForm::absorbed; })},
      {"latent_low_rank_queries", everything, true, latent_with([](LatentConfig& c) {
         c.form = LatentForm::naive;
         c.query_latent_width = c.latent_width - c.latent_width / 3;
       })},
      {"latent_absorbed_no_norm", everything, true, latent_with([](LatentConfig& c) {
         c.form = LatentForm::absorbed;
         c.query_latent_width = c.latent_width - c.latent_width / 3;
         c.norm = false;
       })},
      {"additive", all_masks, true, additive_layer_case},
      {"residual_post_norm", all_masks, true, sublayer_case},
  };
}

}  // namespace tapeformer
