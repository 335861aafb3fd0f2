#pragma once

#include <tapeformer/examples/gradcheck/attention_checks.h>

#include <memory>
#include <utility>

namespace tapeformer {

/// An operation without parameters. A learned mask of the setting becomes an input.
template <class Call>
CheckCase operation_case(const CheckSetting& setting, NamedTensors inputs, Call call) {
  CheckCase result;
  result.inputs = std::move(inputs);
  result.inputs.insert(result.inputs.end(), setting.inputs.begin(), setting.inputs.end());
  result.function = std::move(call);
  return result;
}

/// Fills a layer's parameters with random values, gains near one, and adds them to the checked inputs.
/// `call` runs the layer; its dropout draws the same numbers every time.
template <class Layer, class Call>
CheckCase module_case(CheckSetting& setting, std::shared_ptr<Layer> layer, NamedTensors inputs, Call call) {
  layer->to(setting.type);
  layer->to(setting.sizes.device);
  CheckCase result = operation_case(setting, std::move(inputs),
                                    [layer = layer.get(), counters = layer->named_counters(), call] {
                                      for (const auto& [name, counter] : counters) *counter = 0;
                                      return call(std::as_const(*layer));
                                    });
  for (auto& [name, parameter] : layer->named_parameters()) {
    // Divisors stay away from zero: gains, and, by small lambda_vectors, 1 - lambda.
    const bool is_gain = name.find("norm.weight") != std::string::npos;
    setting.random.fill_normal(parameter.value(), is_gain ? 1 : 0, name == "lambda_vectors" ? 0.1 : 0.4);
    result.inputs.emplace_back(name, parameter.value());
  }
  result.parameters = layer->parameter_count();
  result.module = std::move(layer);
  return result;
}

/// The inputs of a layer: a query, and in cross-attention a memory.
struct Streams {
  Tensor query, memory;
  NamedTensors inputs;
};

/// Draws the inputs of a layer; with `sequence_first`, [T, B, C] instead of [B, T, C].
inline Streams streams_of(CheckSetting& setting, bool sequence_first = false) {
  const auto shape = [&](Index length, Index width) {
    return sequence_first ? Shape{length, setting.batch, width} : Shape{setting.batch, length, width};
  };
  Streams streams;
  streams.query = setting.normal(shape(setting.queries, setting.sizes.width));
  if (!setting.cross) {
    streams.memory = streams.query;
    streams.inputs = {{"x", streams.query}};
  } else {
    streams.memory = setting.normal(shape(setting.keys, setting.sizes.memory_width));
    streams.inputs = {{"query", streams.query}, {"memory", streams.memory}};
  }
  return streams;
}

/// A layer called with a query, a memory and a context.
template <class Layer>
CheckCase layer_case(CheckSetting& setting, std::shared_ptr<Layer> layer, bool sequence_first = false) {
  const Streams streams = streams_of(setting, sequence_first);
  return module_case(setting, std::move(layer), streams.inputs,
                     [streams, context = setting.context](const Layer& of) {
                       return of(streams.query, streams.memory, context);
                     });
}

}  // namespace tapeformer
