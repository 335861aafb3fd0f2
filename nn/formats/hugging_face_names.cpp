#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/formats/hugging_face_names.h>

#include <utility>

namespace tapeformer {
namespace {

/// The names of a Llama's parts.
struct LlamaNames {
  const char *layers, *query, *key, *value, *output, *gate, *up, *down, *attention_norm, *feed_forward_norm;
  const char *embedding, *norm, *head;
};

constexpr LlamaNames kLlama{"model.layers.",
                            "self_attn.q_proj",
                            "self_attn.k_proj",
                            "self_attn.v_proj",
                            "self_attn.o_proj",
                            "mlp.gate_proj",
                            "mlp.up_proj",
                            "mlp.down_proj",
                            "input_layernorm",
                            "post_attention_layernorm",
                            "model.embed_tokens",
                            "model.norm",
                            "lm_head"};
constexpr LlamaNames kMeta{"layers.",        "attention.wq",    "attention.wk",    "attention.wv",
                           "attention.wo",   "feed_forward.w1", "feed_forward.w3", "feed_forward.w2",
                           "attention_norm", "ffn_norm",        "tok_embeddings",  "norm",
                           "output"};

/// Collects parameters; names are without their ".weight" and ".bias".
class List {
 public:
  void parameter(const std::string& name, std::vector<ForeignPart> parts) {
    parameters_.push_back({name, std::move(parts)});
  }
  /// A linear layer of ours: weight and, if it has one, bias.
  void linear(const std::string& name, const std::vector<ForeignPart>& parts, bool bias) {
    std::vector<ForeignPart> weights = parts, biases = parts;
    for (ForeignPart& part : weights) part.name += ".weight";
    for (ForeignPart& part : biases) {
      part.name += ".bias";
      part.shape = {part.shape[part.transposed ? 1 : 0]};
      part.transposed = false;
    }
    parameter(name + ".weight", std::move(weights));
    if (bias) parameter(name + ".bias", std::move(biases));
  }
  void norm(const std::string& name, const std::string& theirs, Index width, bool bias) {
    parameter(name + ".weight", {{theirs + ".weight", {width}}});
    if (bias) parameter(name + ".bias", {{theirs + ".bias", {width}}});
  }
  std::vector<ForeignParameter> take() { return std::move(parameters_); }

 private:
  std::vector<ForeignParameter> parameters_;
};

std::vector<ForeignParameter> gpt2_parameters(const DecoderOnlyConfig& config) {
  const Index C = config.width, F = config.hidden_width();
  List list;
  list.parameter("embedding.weight", {{"transformer.wte.weight", {config.vocabulary, C}}});
  list.parameter("positions.weight", {{"transformer.wpe.weight", {config.context, C}}});
  for (Index i = 0; i < config.layers; ++i) {
    const std::string ours = "layers." + std::to_string(i) + ".",
                      theirs = "transformer.h." + std::to_string(i) + ".";
    list.norm(ours + "attention_norm", theirs + "ln_1", C, true);
    list.linear(ours + "attention.query_key_value", {{theirs + "attn.c_attn", {C, 3 * C}, true}}, true);
    list.linear(ours + "attention.output", {{theirs + "attn.c_proj", {C, C}, true}}, true);
    list.norm(ours + "feed_forward_norm", theirs + "ln_2", C, true);
    list.linear(ours + "feed_forward.up", {{theirs + "mlp.c_fc", {C, F}, true}}, true);
    list.linear(ours + "feed_forward.down", {{theirs + "mlp.c_proj", {F, C}, true}}, true);
  }
  list.norm("norm", "transformer.ln_f", C, true);
  if (!config.tie_head) list.parameter("head.weight", {{"lm_head.weight", {config.vocabulary, C}}});
  return list.take();
}

std::vector<ForeignParameter> llama_parameters(const DecoderOnlyConfig& config, const LlamaNames& names,
                                               bool interleaved_there) {
  const AttentionConfig attention = config.attention_config().resolved();
  const Index C = config.width, F = config.hidden_width(), H = attention.heads, G = attention.key_heads(),
              D = attention.key_width;
  const bool reorders = !interleaved_there && attention.rotations.layout == RotaryLayout::interleaved;
  List list;
  list.parameter("embedding.weight", {{names.embedding + std::string(".weight"), {config.vocabulary, C}}});
  for (Index i = 0; i < config.layers; ++i) {
    const std::string ours = "layers." + std::to_string(i) + ".",
                      theirs = names.layers + std::to_string(i) + ".";
    list.norm(ours + "attention_norm", theirs + names.attention_norm, C, false);
    list.linear(ours + "attention.query_key_value",
                {{theirs + names.query, {H * D, C}, false, reorders ? H : 0},
                 {theirs + names.key, {G * D, C}, false, reorders ? G : 0},
                 {theirs + names.value, {G * D, C}}},
                attention.bias);
    list.linear(ours + "attention.output", {{theirs + names.output, {C, H * D}}}, attention.bias);
    list.norm(ours + "feed_forward_norm", theirs + names.feed_forward_norm, C, false);
    list.linear(ours + "feed_forward.up", {{theirs + names.gate, {F, C}}, {theirs + names.up, {F, C}}},
                config.feed_forward_bias);
    list.linear(ours + "feed_forward.down", {{theirs + names.down, {C, F}}}, config.feed_forward_bias);
  }
  list.norm("norm", names.norm, C, false);
  if (!config.tie_head) {
    list.parameter("head.weight", {{names.head + std::string(".weight"), {config.vocabulary, C}}});
  }
  return list.take();
}

}  // namespace

std::vector<ForeignParameter> foreign_parameters(ForeignFormat format, const DecoderOnlyConfig& config) {
  if (format == ForeignFormat::gpt2) return gpt2_parameters(config);
  const bool is_meta = format == ForeignFormat::meta;
  return llama_parameters(config, is_meta ? kMeta : kLlama, is_meta);
}

std::string name_prefix(ForeignFormat format) {
  if (format == ForeignFormat::gpt2) return "transformer.";
  return format == ForeignFormat::llama ? "model." : "";
}

std::string head_name(ForeignFormat format) {
  return format == ForeignFormat::meta ? "output.weight" : "lm_head.weight";
}

std::string embedding_name(ForeignFormat format) {
  if (format == ForeignFormat::gpt2) return "transformer.wte.weight";
  return (format == ForeignFormat::llama ? kLlama : kMeta).embedding + std::string(".weight");
}

bool is_constant(ForeignFormat format, const std::string& name) {
  switch (format) {
    case ForeignFormat::gpt2: return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias");
    case ForeignFormat::llama: return ends_with(name, ".rotary_emb.inv_freq");
    case ForeignFormat::meta: return name == "rope.freqs" || name == "freqs_cos" || name == "freqs_sin";
  }
  return false;
}

Tensor to_ours(const ForeignPart& part, const Tensor& theirs) {
  return part.transposed ? transpose(theirs) : theirs;
}

Tensor to_theirs(const ForeignPart& part, const Tensor& ours) {
  if (part.transposed) return transpose(ours);
  if (part.interleaved_heads == 0) return ours;
  const Index H = part.interleaved_heads, D = ours.size(0) / H;
  const Tensor pairs = reshape(ours, {H, D / 2, 2, ours.rank() > 1 ? ours.size(1) : 1});
  return reshape(permute(pairs, {0, 2, 1, 3}), ours.shape());
}

}  // namespace tapeformer
