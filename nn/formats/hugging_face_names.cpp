#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/formats/hugging_face_names.h>

#include <algorithm>
#include <map>
#include <utility>

namespace tapeformer {
namespace {

/// The names of a Llama's parts.
struct LlamaNames {
  const char *layers, *query, *key, *value, *output, *gate, *up, *down, *attention_norm, *feed_forward_norm;
  const char *embedding, *norm, *head;
  // Of models that norm queries and keys, or what sublayers add; nullptr if the program has none.
  const char *query_norm = nullptr, *key_norm = nullptr, *attention_output_norm = nullptr,
             *feed_forward_output_norm = nullptr, *feed_forward_norm_of_two = nullptr;
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
                            "lm_head",
                            "self_attn.q_norm",
                            "self_attn.k_norm",
                            "post_attention_layernorm",
                            "post_feedforward_layernorm",
                            "pre_feedforward_layernorm"};
constexpr LlamaNames kMeta{"layers.",        "attention.wq",    "attention.wk",    "attention.wv",
                           "attention.wo",   "feed_forward.w1", "feed_forward.w3", "feed_forward.w2",
                           "attention_norm", "ffn_norm",        "tok_embeddings",  "norm",
                           "output"};

constexpr LlamaNames kGguf{"blk.",       "attn_q",      "attn_k",   "attn_v",    "attn_output",
                           "ffn_gate",   "ffn_up",      "ffn_down", "attn_norm", "ffn_norm",
                           "token_embd", "output_norm", "output"};

/// The names of a GPT-2's parts, and whether its matrices are [in, out].
struct Gpt2Names {
  const char *embedding, *positions, *layers, *attention_norm, *query_key_value, *output;
  const char *feed_forward_norm, *up, *down, *norm, *head;
  bool transposed;
};

constexpr Gpt2Names kGpt2{"transformer.wte", "transformer.wpe",  "transformer.h.", "ln_1",
                          "attn.c_attn",     "attn.c_proj",      "ln_2",           "mlp.c_fc",
                          "mlp.c_proj",      "transformer.ln_f", "lm_head",        true};
constexpr Gpt2Names kGgufGpt2{"token_embd", "position_embd", "blk.",     "attn_norm",
                              "attn_qkv",   "attn_output",   "ffn_norm", "ffn_up",
                              "ffn_down",   "output_norm",   "output",   false};

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
  void norm(const std::string& name, const std::string& theirs, Index width, bool bias, double less = 0) {
    parameter(name + ".weight", {{theirs + ".weight", {width}, false, 0, 0, less}});
    if (bias) parameter(name + ".bias", {{theirs + ".bias", {width}}});
  }
  std::vector<ForeignParameter> take() { return std::move(parameters_); }

 private:
  std::vector<ForeignParameter> parameters_;
};

std::vector<ForeignParameter> gpt2_parameters(const DecoderOnlyConfig& config, const Gpt2Names& names) {
  const Index C = config.width, F = config.hidden_width();
  const auto matrix = [&](const std::string& name, Index in, Index out) {
    return std::vector<ForeignPart>{
        {name, names.transposed ? Shape{in, out} : Shape{out, in}, names.transposed}};
  };
  const auto weight = [](const char* name) { return name + std::string(".weight"); };
  List list;
  list.parameter("embedding.weight", {{weight(names.embedding), {config.vocabulary, C}}});
  list.parameter("positions.weight", {{weight(names.positions), {config.context, C}}});
  for (Index i = 0; i < config.layers; ++i) {
    const std::string ours = "layers." + std::to_string(i) + ".",
                      theirs = names.layers + std::to_string(i) + ".";
    list.norm(ours + "attention_norm", theirs + names.attention_norm, C, true);
    list.linear(ours + "attention.query_key_value", matrix(theirs + names.query_key_value, C, 3 * C), true);
    list.linear(ours + "attention.output", matrix(theirs + names.output, C, C), true);
    list.norm(ours + "feed_forward_norm", theirs + names.feed_forward_norm, C, true);
    list.linear(ours + "feed_forward.up", matrix(theirs + names.up, C, F), true);
    list.linear(ours + "feed_forward.down", matrix(theirs + names.down, F, C), true);
  }
  list.norm("norm", names.norm, C, true);
  if (!config.tie_head) list.parameter("head.weight", {{weight(names.head), {config.vocabulary, C}}});
  return list.take();
}

std::vector<ForeignParameter> llama_parameters(const DecoderOnlyConfig& config, const LlamaNames& names,
                                               bool interleaved_there) {
  const AttentionConfig attention = config.attention_config().resolved();
  const Index C = config.width, F = config.hidden_width(), H = attention.heads, G = attention.key_heads(),
              D = attention.key_width;
  const bool interleaved_here = attention.rotations.layout == RotaryLayout::interleaved,
             to_halves = interleaved_here && !interleaved_there,
             to_pairs = !interleaved_here && interleaved_there,
             outputs = config.sublayer_norms == SublayerNorms::output,
             both = config.sublayer_norms == SublayerNorms::both;
  const double less = both ? 1 : 0;  // Gemma's gains begin at 0
  List list;
  list.parameter("embedding.weight", {{names.embedding + std::string(".weight"), {config.vocabulary, C}}});
  for (Index i = 0; i < config.layers; ++i) {
    const std::string ours = "layers." + std::to_string(i) + ".",
                      theirs = names.layers + std::to_string(i) + ".";
    const char* const attention_norm = outputs ? names.attention_output_norm : names.attention_norm;
    const char* const feed_forward_norm = outputs ? names.feed_forward_output_norm
                                          : both  ? names.feed_forward_norm_of_two
                                                  : names.feed_forward_norm;
    list.norm(ours + "attention_norm", theirs + attention_norm, C, false, less);
    list.linear(ours + "attention.query_key_value",
                {{theirs + names.query, {H * D, C}, false, to_halves ? H : 0, to_pairs ? H : 0},
                 {theirs + names.key, {G * D, C}, false, to_halves ? G : 0, to_pairs ? G : 0},
                 {theirs + names.value, {G * D, C}}},
                attention.bias);
    if (attention.qk_norm != QkNorm::none) {
      const auto gain = [&](const char* name, const char* norm, Index heads) {
        const Index n = attention.qk_norm == QkNorm::joint ? heads : 1;
        list.parameter(ours + name,
                       {{theirs + norm + ".weight", {n * D}, false, to_halves ? n : 0, 0, less}});
      };
      gain("attention.query_norm.weight", names.query_norm, H);
      gain("attention.key_norm.weight", names.key_norm, G);
    }
    list.linear(ours + "attention.output", {{theirs + names.output, {C, H * D}}}, *attention.output_bias);
    list.norm(ours + "feed_forward_norm", theirs + feed_forward_norm, C, false, less);
    if (both) {
      list.norm(ours + "attention_output_norm", theirs + names.attention_output_norm, C, false, less);
      list.norm(ours + "feed_forward_output_norm", theirs + names.feed_forward_output_norm, C, false, less);
    }
    list.linear(ours + "feed_forward.up", {{theirs + names.gate, {F, C}}, {theirs + names.up, {F, C}}},
                config.feed_forward_bias);
    list.linear(ours + "feed_forward.down", {{theirs + names.down, {C, F}}}, config.feed_forward_bias);
  }
  list.norm("norm", names.norm, C, false, less);
  if (!config.tie_head) {
    list.parameter("head.weight", {{names.head + std::string(".weight"), {config.vocabulary, C}}});
  }
  return list.take();
}

}  // namespace

std::vector<ForeignParameter> foreign_parameters(ForeignFormat format, const DecoderOnlyConfig& config) {
  switch (format) {
    case ForeignFormat::gpt2: return gpt2_parameters(config, kGpt2);
    case ForeignFormat::gguf_gpt2: return gpt2_parameters(config, kGgufGpt2);
    case ForeignFormat::llama: return llama_parameters(config, kLlama, false);
    case ForeignFormat::meta: return llama_parameters(config, kMeta, true);
    case ForeignFormat::gguf_llama: return llama_parameters(config, kGguf, true);
  }
  return {};
}

std::string name_prefix(ForeignFormat format) {
  if (format == ForeignFormat::gpt2) return "transformer.";
  return format == ForeignFormat::llama ? "model." : "";
}

std::string head_name(ForeignFormat format) {
  const bool is_transformers = format == ForeignFormat::gpt2 || format == ForeignFormat::llama;
  return is_transformers ? "lm_head.weight" : "output.weight";
}

std::string embedding_name(ForeignFormat format) {
  if (format == ForeignFormat::gpt2) return "transformer.wte.weight";
  if (format == ForeignFormat::llama) return kLlama.embedding + std::string(".weight");
  return (format == ForeignFormat::meta ? kMeta : kGguf).embedding + std::string(".weight");
}

bool is_constant(ForeignFormat format, const std::string& name) {
  switch (format) {
    case ForeignFormat::gpt2: return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias");
    case ForeignFormat::llama: return ends_with(name, ".rotary_emb.inv_freq");
    case ForeignFormat::gguf_gpt2:
    case ForeignFormat::gguf_llama: return name == "rope_freqs.weight";
    case ForeignFormat::meta: return name == "rope.freqs" || name == "freqs_cos" || name == "freqs_sin";
  }
  return false;
}

Tensor to_ours(const ForeignPart& part, const Tensor& theirs) {
  if (part.less != 0) return theirs + part.less;
  return part.transposed ? transpose(theirs) : theirs;
}

Tensor to_theirs(const ForeignPart& part, const Tensor& ours) {
  if (part.transposed) return transpose(ours);
  const bool has_pairs = part.interleaved_heads > 0;
  const Tensor numbers = part.less != 0 ? ours - part.less : ours;
  if (!has_pairs && part.half_split_heads == 0) return numbers;
  const Index H = std::max(part.interleaved_heads, part.half_split_heads), D = ours.size(0) / H,
              C = ours.rank() > 1 ? ours.size(1) : 1;
  const Tensor rows = reshape(numbers, has_pairs ? Shape{H, D / 2, 2, C} : Shape{H, 2, D / 2, C});
  return reshape(permute(rows, {0, 2, 1, 3}), ours.shape());
}

std::vector<std::pair<std::string, Tensor>> foreign_tensors(ForeignFormat format, DecoderOnly& model) {
  const NoGradGuard pause;
  std::map<std::string, Parameter> parameters;
  for (const auto& [name, parameter] : model.named_parameters()) parameters.emplace(name, parameter);
  const DType type = parameters.at("embedding.weight").value().dtype();
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const ForeignParameter& target : foreign_parameters(format, model.config())) {
    const auto ours = parameters.find(target.name);
    if (ours == parameters.end()) {
      if (!ends_with(target.name, ".bias")) throw CheckpointError("the model has no " + target.name);
      for (const ForeignPart& part : target.parts) {
        tensors.emplace_back(part.name, Tensor::zeros(part.shape, type));
      }
      continue;
    }
    Index from = 0;
    for (const ForeignPart& part : target.parts) {
      const Index rows = part.transposed ? part.shape[1] : part.shape[0];
      tensors.emplace_back(part.name, to_theirs(part, slice(ours->second.value(), 0, from, rows)));
      from += rows;
    }
    parameters.erase(ours);
  }
  for (const auto& [name, parameter] : parameters) {
    throw CheckpointError("nothing stands for " + name);
  }
  return tensors;
}

}  // namespace tapeformer
