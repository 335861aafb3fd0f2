#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/formats/layouts.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <set>

namespace tapeformer {
namespace {

struct LinearWeights : ParameterVisitor {
  void on_linear(const std::string& path, Linear&) override { paths.insert(path + ".weight"); }
  std::set<std::string> paths;
};

/// The gain of the norm in linear attention, "attention.norm.weight", is always stored whole.
bool is_gain(const std::string& path) {
  return ends_with(path, "norm.weight") && !ends_with(path, ".attention.norm.weight");
}

/// The layouts of all parameters, without heads.
Layouts layouts_of_parameters(Module& model) {
  LinearWeights linear;
  model.visit(linear);
  const auto parts = model.row_parts();
  Layouts layouts;
  for (const auto& [path, parameter] : model.named_parameters()) {
    const Shape& shape = parameter.value().shape();
    Layout& layout = layouts.parameters[path];
    const auto several = parts.find(path);
    if (several == parts.end())
      layout.blocks = {{shape[0]}};
    else
      for (const Index rows : several->second) layout.blocks.push_back({rows});
    layout.columns = shape.rank() > 1 ? shape[1] : 0;
    layout.is_linear = linear.paths.count(path) > 0;
    layout.is_gain = is_gain(path);
  }
  return layouts;
}

/// Adds the heads of the parameters of an attention layer, whose paths begin with `prefix`.
void add_heads(Layouts& model, const std::string& prefix, const AttentionConfig& attention) {
  const Index H = attention.heads, G = attention.key_heads();
  const auto find = [&](const std::string& name) -> Layout* {
    const auto found = model.parameters.find(prefix + name);
    return found == model.parameters.end() ? nullptr : &found->second;
  };
  // `heads` of the tensor and, if the format may reorder them, those of its blocks.
  const auto set = [&](const std::string& name, Index heads, const std::vector<Index>& of_blocks = {}) {
    Layout* const layout = find(name + ".weight");
    if (layout == nullptr) return;
    layout->heads = heads;
    for (std::size_t i = 0; i < of_blocks.size(); ++i) layout->blocks.at(i).heads = of_blocks[i];
  };
  if (attention.kind == "mla") {  // rotary rows and others share tensors in other programs
    set("query_up", H), set("query_rotary", H, {H}), set("key_value_down", 1), set("key_rotary", 1, {1});
    return set("key_up", H), set("value_up", H);
  }
  if (attention.kind == "gated_deltanet" || attention.kind == "kda") {
    const auto key_heads = static_cast<Index>(attention.own.at("state_key_heads"));
    for (const char* const name : {"query_key_value", "beta", "decay_up", "gate"}) set(name, key_heads);
    if (Layout* const convolution = find("convolution.weight")) {
      convolution->blocks = find("query_key_value.weight")->blocks;
      convolution->taps = static_cast<Index>(attention.own.at("convolution_taps"));
    }
    return;
  }
  set("gate", H);
  if (attention.kind == "differential") {
    set("query", H, {2 * H}), set("key_value", H, {2 * G});
    find("query.weight")->blocks[0].pairs = H;
    for (RowBlock& block : find("key_value.weight")->blocks) block.pairs = G;
    find("lambda_vectors")->blocks.assign(4, {attention.key_width / 2});
    return;
  }
  set("query_key_value", H, {H, G});
  const bool is_joint = attention.qk_norm == QkNorm::joint;
  set("query_norm", 0, {is_joint ? H : 1}), set("key_norm", 0, {is_joint ? G : 1});
}

}  // namespace

Layouts layouts_of(DecoderOnly& model) {
  const DecoderOnlyConfig& config = model.config();
  Layouts layouts = layouts_of_parameters(model);
  layouts.layers["layers."] = config.layers;
  for (Index i = 0; i < config.layers; ++i) {
    const AttentionConfig attention = config.attention_config(i).resolved();
    add_heads(layouts, "layers." + std::to_string(i) + ".attention.", attention);
    if (!config.attention_pattern.empty()) layouts.letters += config.has_full_attention(i) ? 'F' : 'D';
    const bool has_rotary_keys = attention.rotary_width > 0 && attention.shared_key_rotation;
    if (config.positions == PositionKind::rotary || has_rotary_keys)
      layouts.rotary = config.attention.rotations.layout;
  }
  if (config.tie_head) layouts.ties.emplace_back("head", "embedding");
  return layouts;
}

Layouts layouts_of(EncoderDecoder& model) {
  const EncoderDecoderConfig& config = model.config();
  Layouts layouts = layouts_of_parameters(model);
  layouts.layers = {{"encoder.", config.encoder_layers}, {"decoder.", config.decoder_layers}};
  layouts.shares_embeddings = config.tie_embeddings;
  if (config.tie_embeddings) layouts.ties.emplace_back("decoder.embedding", "encoder.embedding");
  if (config.tie_target_head)
    layouts.ties.emplace_back("head.weight",
                              config.tie_embeddings ? "encoder.embedding" : "decoder.embedding");
  else
    layouts.parameters.at("head.weight").is_linear = true;
  return layouts;
}

}  // namespace tapeformer
