#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/examples/shared/summary.h>
#include <tapeformer/nn/attention/cost.h>

#include <algorithm>

namespace tapeformer {
namespace {

constexpr Index kLongestRow = 1024;  // a pass over the whole context of some models takes too much memory

/// A row of a table in Markdown.
std::string field_row(const ConfigField& field) {
  const auto replaced = [](const std::string& text, const std::string& from, const std::string& to) {
    return text.compare(0, from.size(), from) == 0 ? to + text.substr(from.size()) : text;
  };
  const std::string range = field.choices().empty()
                                ? replaced(replaced(field.rule.words, "must be ", ""), "must not be ", "not ")
                                : alternatives(field.choices());
  return format("| `{}` | {} | {} | {} | {} |\n", field.name, replaced(type_text(field), "a ", ""),
                field.text(), range, field.help);
}

std::string cost_line(const std::string& name, const std::string& flops, const std::string& bytes) {
  return format("{:-44s} {:15s}", name, flops) + (bytes.empty() ? "" : format(" {:18s}", bytes)) + "\n";
}

/// The costs of a layer that do not depend on the sizes of a call; zeros if unknown.
AttentionCost cost_of(const AttentionConfig& attention, DType type) {
  AttentionCall call;
  call.type = type;
  return attention_kind(attention.kind).add_cost ? attention_cost(attention, call) : AttentionCost();
}

/// A line on bytes in caches; empty if there are none, or if unknown.
std::string cache_line(const char* name, double bytes) {
  return bytes > 0 ? cost_line(name, "", bytes_text(bytes)) : "";
}

std::string costs_of(Module& model, const std::string& row, const std::function<Tensor()>& loss) {
  model.train();
  const Profile profile(false, true);
  Tape tape;
  const Tensor value = loss();
  const TapeMemory memory = tape.memory();
  tape.backward(value);
  model.clear_gradients();
  std::string text = cost_line(row, "forward FLOPs", "bytes for backward");
  for (const ProfiledPart& part : profile.parts())
    text += cost_line(part.name, count_text(part.flops), bytes_text(static_cast<double>(part.saved_bytes)));
  text += cost_line("total", count_text(profile.flops(false)),
                    bytes_text(static_cast<double>(memory.saved_bytes - memory.parameter_bytes)));
  return text + cost_line("backward", count_text(profile.flops(true)), "");
}

/// The parameters of a layer's network that a token does not pass.
Index idle_of_layer(const FeedForwardConfig& network, const ExpertsConfig& experts) {
  const FeedForwardCost cost = feed_forward_cost(network, experts, 1);
  return cost.parameters - cost.active;
}

Tensor zero_ids(Index length, Device device) { return Tensor::zeros({1, length}, DType::i32, device); }

}  // namespace

std::string fields_text(const FieldList& fields, const FieldList& defaults) {
  std::string text;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::string value = fields[i].text();
    const bool is_default = value == defaults[i].text();
    if (fields[i].value())
      text +=
          format("{:-26s} ", fields[i].name) + (is_default ? format("{:-14s} default", value) : value) + "\n";
  }
  return text;
}

std::string changes_text(const FieldList& fields, const FieldList& defaults) {
  return joined(changed_fields(fields, defaults), ", ",
                [](const ChangedField& changed) { return changed.now->name + "=" + changed.now->text(); });
}

Index idle_parameters(const DecoderOnlyConfig& config) {
  FeedForwardConfig network{config.width, config.hidden_width()};
  network.gated = config.gated, network.bias = config.feed_forward_bias;
  return (config.layers - config.experts_from) * idle_of_layer(network, config.experts);
}

Index idle_parameters(const EncoderDecoderConfig& config) {
  const auto idle = [](const TransformerLayerConfig& layer) {
    FeedForwardConfig network{layer.width, layer.feed_forward};
    network.gated = layer.gated, network.bias = layer.feed_forward_bias;
    return idle_of_layer(network, layer.experts);
  };
  return config.encoder_layers * idle(config.layer) + config.decoder_layers * idle(config.decoder_layer());
}

std::string parameters_text(Module& model, Index idle) {
  std::string text;
  Index frozen = 0;
  const auto add = [&](const std::string& path, const std::string& shape, Index count,
                       const char* remark = "") {
    text += format("{:-48s} {:-16s} {:12d}{}\n", path, shape, count, remark);
  };
  for (const auto& [path, parameter] : model.named_parameters()) {
    const Index count = parameter.value().elements();
    add(path, parameter.value().shape().text(), count, parameter.trainable() ? "" : "  frozen");
    if (!parameter.trainable()) frozen += count;
  }
  add("total", "", model.parameter_count());
  if (frozen > 0) add("frozen", "", frozen);
  if (idle > 0) add("of a token", "", model.parameter_count() - idle);
  return text;
}

std::string costs_text(DecoderOnly& model) {
  const DecoderOnlyConfig& config = model.config();
  const Index length = std::min(config.context, kLongestRow);
  const Tensor ids = zero_ids(length, model.device());
  double of_token = 0, of_row = 0;
  for_each_attention(config, [&](const AttentionConfig& attention) {
    const AttentionCost cost = cost_of(attention, model.parameters().front().value().dtype());
    of_token += static_cast<double>(cost.cache_bytes_per_token);
    of_row += static_cast<double>(cost.cache_bytes_per_row);
  });
  return costs_of(model, "a row of " + number_of(length, "token"), [&] { return model.loss(ids, ids); }) +
         cache_line("a token in the caches", of_token) + cache_line("a row's states in the caches", of_row);
}

std::string costs_text(EncoderDecoder& model) {
  const EncoderDecoderConfig& config = model.config();
  const Tensor ids = zero_ids(config.max_length, model.device());
  const auto line = [&](const char* name, bool is_cross) {
    const AttentionCost cost = cost_of(config.decoder_layer().attention_config(is_cross),
                                       model.parameters().front().value().dtype());
    return cache_line(name, static_cast<double>(config.decoder_layers * cost.cache_bytes_per_token));
  };
  return costs_of(model, "a pair of " + number_of(config.max_length, "token") + " each",
                  [&] { return model.loss(ids, {}, ids, ids); }) +
         line("a target's token in the caches", false) + line("a source's token in the caches", true);
}

std::string fields_table(const FieldList& fields) {
  return "| field | type | default | range | meaning |\n|---|---|---|---|---|\n" +
         joined(fields, "", field_row);
}

std::string fields_document(const std::string& program, const FieldList& model, const FieldList& options) {
  return "# config.json of a run of " + program + "\n\nWritten by `" + program +
         " fields`. A field that a file lacks takes its default.\n\n## The model\n\n" + fields_table(model) +
         "\n## `training`: the options of `train`\n\n" + fields_table(options);
}

}  // namespace tapeformer
