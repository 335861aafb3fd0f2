#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

namespace tapeformer {

/// The fields of a configuration that have a value, one per line.
std::string fields_text(const FieldList& fields, const FieldList& defaults);

/// "layers=4, width=128": the fields that are not at their defaults.
std::string changes_text(const FieldList& fields, const FieldList& defaults);
template <class Config>
std::string changes_text(const Config& config) {
  const Config usual;
  return changes_text(fields_of(config), fields_of(usual));
}

/// The parameters with their shapes and numbers of values; the total, the frozen ones, and the total without
/// the `idle` parameters of experts that a token does not pass.
std::string parameters_text(Module& model, Index idle = 0);

/// The costs of one row of the longest length, at most 1024 tokens, by part: FLOPs of the forward pass and
/// bytes kept for the backward pass; FLOPs of both passes, and bytes per token in the caches. Runs both
/// passes once, in training mode, and clears the model's gradients.
std::string costs_text(DecoderOnly& model);
/// The costs of a source and a target of the longest length.
std::string costs_text(EncoderDecoder& model);

/// The parameters of experts that a token does not pass.
Index idle_parameters(const DecoderOnlyConfig& config);
Index idle_parameters(const EncoderDecoderConfig& config);

/// The output of --summary for a model.
template <class Model>
std::string summary_of(Model& model) {
  const auto& config = model.config();
  const std::decay_t<decltype(config)> usual;
  return fields_text(fields_of(config), fields_of(usual)) + "\n" +
         parameters_text(model, idle_parameters(config)) + "\n" + costs_text(model);
}

/// The fields of a configuration as a table in Markdown.
std::string fields_table(const FieldList& fields);

/// The output of a program's command `fields`, in Markdown.
std::string fields_document(const std::string& program, const FieldList& model, const FieldList& options);

}  // namespace tapeformer
