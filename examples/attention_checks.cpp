#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/attention_checks.h>
#include <tapeformer/nn/attention/attention_sublayer.h>
#include <tapeformer/nn/attention/concatenated_heads.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/nn/attention/self_attention.h>
#include <tapeformer/nn/attention/single_head.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// A layer to be checked in the modes that it takes.
struct CheckedLayer {
  std::string name;
  std::function<bool(const AttentionMode&)> takes;
  bool masks_by_head;
  std::function<CheckCase(CheckSetting&)> make;
};

/// Gives a layer random values, gains near one included, and makes its parameters inputs of the check.
/// `call` runs it; its dropout draws the same numbers every time.
template <class Call>
CheckCase case_of(CheckSetting& setting, std::shared_ptr<Module> module, NamedTensors inputs, Call call) {
  CheckCase result;
  result.inputs = std::move(inputs);
  result.inputs.insert(result.inputs.end(), setting.inputs.begin(), setting.inputs.end());
  module->to(setting.type);
  for (auto& [name, parameter] : module->named_parameters()) {
    const bool is_gain = name.find("norm.weight") != std::string::npos;
    const Tensor& value = parameter.value();
    setting.random.fill_normal(value, is_gain ? 1 : 0, 0.4);
    result.inputs.emplace_back(name, value);
  }
  result.parameters = module->parameter_count();
  result.function = [module = module.get(), counters = module->named_counters(), call] {
    for (const auto& [name, counter] : counters) *counter = 0;
    return call(*module);
  };
  result.module = std::move(module);
  return result;
}

/// Inputs of a layer that maps a query, and a memory in cross-attention. Axes 0 and 1 trade places for
/// layers that want the sequence first.
struct Streams {
  Tensor query, memory;
  NamedTensors inputs;
};
Streams streams_of(CheckSetting& setting, bool sequence_first = false) {
  const auto shape = [&](Index length, Index width) {
    return sequence_first ? Shape{length, setting.batch, width} : Shape{setting.batch, length, width};
  };
  const CheckSizes& sizes = setting.sizes;
  Streams streams;
  streams.query = setting.normal(shape(setting.queries, sizes.width));
  if (!setting.cross) {
    streams.memory = streams.query;
    streams.inputs = {{"x", streams.query}};
  } else {
    streams.memory = setting.normal(shape(setting.keys, sizes.memory_width));
    streams.inputs = {{"query", streams.query}, {"memory", streams.memory}};
  }
  return streams;
}

/// A layer that is called with a query, a memory and a context.
template <class Layer>
CheckCase layer_case(CheckSetting& setting, std::shared_ptr<Layer> layer, bool sequence_first = false) {
  const Streams streams = streams_of(setting, sequence_first);
  return case_of(setting, std::move(layer), streams.inputs,
                 [streams, context = setting.context](Module& module) {
                   return dynamic_cast<const Layer&>(module)(streams.query, streams.memory, context);
                 });
}

Index memory_width(const CheckSetting& setting) {
  return setting.cross ? setting.sizes.memory_width : setting.sizes.width;
}

// --- which modes a layer takes ---------------------------------------------------------------------------

bool all_masks(const AttentionMode& mode) { return !mode.positions; }
bool only_plain(const AttentionMode& mode) { return !mode.cross && !mode.wants_context; }
bool only_self(const AttentionMode& mode) { return !mode.cross && !mode.positions; }

// --- the operations --------------------------------------------------------------------------------------

using AttentionFunction = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const AttentionOptions&);

AttentionOptions options_of(const CheckSetting& setting) {
  AttentionOptions options(setting.context);
  options.dropout = setting.dropout;
  options.dropout_key.seed = setting.sizes.seed;
  return options;
}

CheckCase operation_case(CheckSetting& setting, AttentionFunction attention) {
  const CheckSizes& sizes = setting.sizes;
  const Tensor query = setting.normal({setting.batch, setting.queries, sizes.heads, sizes.head_width});
  const Tensor key = setting.normal({setting.batch, setting.keys, sizes.groups, sizes.head_width});
  const Tensor value = setting.normal({setting.batch, setting.keys, sizes.groups, sizes.value_width});
  CheckCase result;
  result.inputs = {{"query", query}, {"key", key}, {"value", value}};
  result.inputs.insert(result.inputs.end(), setting.inputs.begin(), setting.inputs.end());
  result.function = [=, options = options_of(setting)] { return attention(query, key, value, options); };
  return result;
}

CheckCase packed_case(CheckSetting& setting) {
  const CheckSizes& sizes = setting.sizes;
  const PackedHeads heads{sizes.heads, sizes.groups, sizes.head_width, sizes.value_width};
  const Tensor packed = setting.normal({setting.batch, setting.queries, heads.width()});
  CheckCase result;
  result.inputs = {{"packed", packed}};
  result.inputs.insert(result.inputs.end(), setting.inputs.begin(), setting.inputs.end());
  result.function = [=, options = options_of(setting)] { return packed_attention(packed, heads, options); };
  return result;
}

// --- the layers ------------------------------------------------------------------------------------------

CheckCase weightless_case(CheckSetting& setting) {
  const Streams streams = streams_of(setting);
  CheckCase result;
  result.inputs = streams.inputs;
  result.function = [x = streams.query] { return self_attention(x, 0.4); };
  return result;
}

CheckCase matrix_case(CheckSetting& setting) {
  const CheckSizes& sizes = setting.sizes;
  auto layer = std::make_shared<MatrixSelfAttention>(
      MatrixSelfAttentionConfig{sizes.width, sizes.head_width, sizes.value_width}, setting.random);
  const Streams streams = streams_of(setting);
  return case_of(setting, layer, streams.inputs, [x = streams.query](Module& module) {
    return dynamic_cast<const MatrixSelfAttention&>(module)(x);
  });
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

CheckCase multi_head_case(CheckSetting& setting) {
  return layer_case(setting, std::make_shared<MultiHeadAttention>(multi_head(setting), setting.random));
}

CheckCase sublayer_case(CheckSetting& setting) {
  auto attention = std::make_unique<MultiHeadAttention>(multi_head(setting), setting.random);
  AttentionSublayerConfig config;
  config.width = setting.sizes.width;
  config.dropout = setting.dropout;
  return layer_case(setting,
                    std::make_shared<AttentionSublayer>(std::move(attention), config, setting.random));
}

std::vector<CheckedLayer> layers() {
  const auto operation = [](AttentionFunction attention) {
    return [attention](CheckSetting& setting) { return operation_case(setting, attention); };
  };
  return {
      {"scaled_dot_product", all_masks, true, operation(&scaled_dot_product_attention)},
      {"composed", all_masks, true, operation(&composed_attention)},
      {"packed_projection", only_self, true, packed_case},
      {"weightless", only_plain, false, weightless_case},
      {"matrices", only_plain, false, matrix_case},
      {"single_head", all_masks, false, single_head_case<SingleHeadAttention>},
      {"causal", all_masks, false, single_head_case<CausalAttention>},
      {"concatenated_heads", all_masks, false, concatenated_case},
      {"multi_head", all_masks, true, multi_head_case},
      {"residual_post_norm", all_masks, true, sublayer_case},
  };
}

bool is_named(const std::string& name, const std::vector<std::string>& wanted) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
}

std::string without_kind(const std::string& mode) {
  const std::size_t space = mode.find(' ');
  return space == std::string::npos ? mode : mode.substr(space + 1);
}

/// Throws unless every wanted name is one of `known`.
void require_known(const char* option, const std::vector<std::string>& wanted,
                   const std::vector<std::string>& known) {
  for (const std::string& name : wanted) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string names;
    for (const std::string& other : known) names += (names.empty() ? "" : ", ") + other;
    throw Error(std::string(option) + " must be one of " + names + "; got " + name);
  }
}

}  // namespace

std::vector<AttentionCheck> attention_checks() {
  std::vector<AttentionCheck> checks;
  for (const CheckedLayer& layer : layers()) {
    for (const AttentionMode& mode : attention_modes()) {
      if (!layer.takes(mode)) continue;
      checks.push_back({layer.name, mode, [layer, mode](const CheckSizes& sizes, DType type) {
                          const Index heads = layer.masks_by_head ? sizes.heads : 1;
                          CheckSetting setting = setting_of(mode, sizes, heads, type);
                          return layer.make(setting);
                        }});
    }
  }
  return checks;
}

std::vector<AttentionCheck> selected_checks(const std::vector<std::string>& layers_wanted,
                                            const std::vector<std::string>& modes_wanted) {
  std::vector<std::string> layer_names, mode_names;
  for (const CheckedLayer& layer : layers()) layer_names.push_back(layer.name);
  for (const AttentionMode& mode : attention_modes()) mode_names.push_back(mode.name);
  for (const AttentionMode& mode : attention_modes()) {
    const std::string name = without_kind(mode.name);
    if (!is_named(name, mode_names)) mode_names.push_back(name);
  }
  require_known("--layer", layers_wanted, layer_names);
  require_known("--mode", modes_wanted, mode_names);
  std::vector<AttentionCheck> chosen;
  for (AttentionCheck& check : attention_checks()) {
    if (!is_named(check.layer, layers_wanted)) continue;
    if (!is_named(check.mode.name, modes_wanted) && !is_named(without_kind(check.mode.name), modes_wanted))
      continue;
    chosen.push_back(std::move(check));
  }
  if (chosen.empty()) throw Error("none of the layers named has any of the modes named; try --list");
  return chosen;
}

}  // namespace tapeformer
