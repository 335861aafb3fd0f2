#pragma once

#include <tapeformer/autograd/config/json.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/tests/nn/module_case.h>

#include <nlohmann/json.hpp>

#include <algorithm>

namespace tapeformer {

/// A configuration from a golden case's options, named as its fields; other fields keep their values.
inline DecoderOnlyConfig decoder_only_config(const nlohmann::ordered_json& options) {
  DecoderOnlyConfig config;
  config.vocabulary = 1;
  auto fields = parse_json(config.to_json());
  for (const auto& [name, value] : options.items()) {
    if (fields.contains(name)) fields[name] = value;
  }
  return DecoderOnlyConfig::from_json(fields.dump());
}

/// Gives `model` the parameters of a golden case.
inline void set_golden_parameters(const Golden& golden, const std::string& name_of_case, Module& model,
                                  DType type) {
  std::size_t parts = 0;
  for (auto& [name, parameter] : model.named_parameters()) {
    parameter.set_value(golden_parameter(golden, name_of_case, "param.", name, type));
    parts += golden_parts(name).size();
  }
  REQUIRE(parts == golden.names(name_of_case, "param.").size());
}

/// Sizes that all differ, without biases; otherwise the defaults.
inline DecoderOnlyConfig tiny_config() {
  DecoderOnlyConfig config;
  config.vocabulary = 7;
  config.context = 6;
  config.layers = 2;
  config.width = 8;
  config.attention.heads = 4;
  config.feed_forward = 5;
  config.attention.bias = config.norm_bias = config.feed_forward_bias = false;
  return config;
}

inline DecoderOnly tiny_model(const DecoderOnlyConfig& config) { return random_module<DecoderOnly>(config); }

/// Tokens [first, first + count) of every row.
inline Tensor columns(const Tensor& ids, Index first, Index count) {
  const Tensor part = Tensor::empty({ids.size(0), count}, DType::i32);
  for (Index row = 0; row < ids.size(0); ++row) {
    std::copy_n(ids.data<std::int32_t>() + row * ids.size(1) + first, count,
                part.data<std::int32_t>() + row * count);
  }
  return part;
}

/// The feed-forward network that the command line calls swiglu.
inline void swiglu(DecoderOnlyConfig& config) {
  config.activation = Unary::silu;
  config.gated = true;
}

}  // namespace tapeformer
