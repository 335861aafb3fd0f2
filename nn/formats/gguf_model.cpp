#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/formats/gguf_model.h>

namespace tapeformer {
namespace {

bool is_gpt2(const DecoderOnlyConfig& config) { return config.norm == NormKind::layer; }

void describe_gguf_gpt2(ConfigMap& map) {
  family_of_type("gpt2").describe(map);
  map.fixed("activation", std::string("gelu_tanh"));
}

void describe_gguf_llama(ConfigMap& map) {
  map.fixed("rotary_yarn", false);
  family_of_type("llama").describe(map);
  map.fixed("activation", std::string("silu"));
}

/// llama.cpp's names for both families; a model has some of them.
TensorNames gguf_names(const std::vector<std::string>& query_key_value, const std::vector<std::string>& up,
                       TensorForm form) {
  return {{{"embedding", {"token_embd"}},
           {"positions", {"position_embd"}},
           {"layers.*.attention_norm", {"blk.*.attn_norm"}},
           {"layers.*.attention.query_key_value", query_key_value},
           {"layers.*.attention.output", {"blk.*.attn_output"}},
           {"layers.*.feed_forward_norm", {"blk.*.ffn_norm"}},
           {"layers.*.feed_forward.up", up},
           {"layers.*.feed_forward.down", {"blk.*.ffn_down"}},
           {"norm", {"output_norm"}},
           {"head", {"output"}}},
          {},
          form};
}

std::uint32_t number(Index size) { return static_cast<std::uint32_t>(size); }

/// The divisor of the frequency of each pair of components in Llama 3's scaling.
Tensor frequency_divisors(const RotaryConfig& rotations, Index head_width) {
  RotaryConfig plain = rotations;
  plain.factor = 1, plain.original_context = 0;
  const auto frequencies = [&](const RotaryConfig& config) {  // the angles of position 1, which are at most 1
    return rotary_angles(config, head_width, 1, 1, DType::f64, Device::cpu()).table;
  };
  const Tensor before = frequencies(plain), after = frequencies(rotations);
  const Index pairs = head_width / 2;
  const Tensor divisors = Tensor::empty({pairs}, DType::f32, Device::cpu());
  for (Index i = 0; i < pairs; ++i) {
    const auto angle = [&](const Tensor& table) { return std::atan2(table.at(pairs + i), table.at(i)); };
    divisors.data<float>()[i] = static_cast<float>(angle(before) / angle(after));
  }
  return divisors;
}

}  // namespace

const ModelFormat& gguf_format() {
  static const std::vector<Family> families = {
      {"gpt2", "GPT-2", "gpt2", describe_gguf_gpt2,
       gguf_names({"blk.*.attn_qkv"}, {"blk.*.ffn_up"}, kAllBiases)},
      {"llama", "Llama", "llama", describe_gguf_llama,
       gguf_names({"blk.*.attn_q", "blk.*.attn_k", "blk.*.attn_v"}, {"blk.*.ffn_gate", "blk.*.ffn_up"},
                  kInterleaved)}};
  static const ModelFormat format{"gguf", families};
  return format;
}

GgufMetadata gguf_metadata(const DecoderOnlyConfig& config) {
  const Expression expression = expression_in(gguf_format(), config);
  expression.check();
  const std::string architecture = expression.family->architecture;
  const AttentionConfig attention = config.attention_config().resolved();
  const RotaryConfig& rotations = config.attention.rotations;
  GgufMetadata metadata{{"general.architecture", architecture}};
  const auto add = [&](const char* key, const GgufValue& value) {
    metadata.emplace_back(architecture + "." + key, value);
  };
  add("context_length", number(config.context));
  add("embedding_length", number(config.width));
  add("block_count", number(config.layers));
  add("feed_forward_length", number(config.hidden_width()));
  add("attention.head_count", number(config.attention.heads));
  if (is_gpt2(config)) {
    add("attention.layer_norm_epsilon", static_cast<float>(config.epsilon));
    return metadata;
  }
  add("vocab_size", number(config.vocabulary));
  add("attention.head_count_kv", number(attention.key_heads()));
  add("attention.key_length", number(attention.key_width));
  add("attention.value_length", number(attention.key_width));
  add("attention.layer_norm_rms_epsilon", static_cast<float>(config.epsilon));
  add("rope.dimension_count", number(attention.key_width));
  add("rope.freq_base", static_cast<float>(rotations.base));
  if (rotations.original_context == 0 && rotations.factor != 1) {
    add("rope.scaling.type", std::string("linear"));
    add("rope.scaling.factor", static_cast<float>(rotations.factor));
  }
  return metadata;
}

void save_gguf_model(const std::string& path, DecoderOnly& model, const GgufMetadata& tokenizer,
                     GgufType type) {
  const NoGradGuard pause;
  const DecoderOnlyConfig& config = model.config();
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;
  naming(path, [&] {
    metadata = gguf_metadata(config);
    const Family& family = *expression_in(gguf_format(), config).family;
    for (const auto& [name, value] : foreign_tensors(family.names, layouts_of(model), model)) {
      const bool is_matrix = value.rank() > 1 && name != "position_embd.weight";
      tensors.push_back({name, value, is_matrix ? type : GgufType::f32});
    }
  });
  const RotaryConfig& rotations = config.attention.rotations;
  if (!is_gpt2(config) && rotations.original_context > 0) {
    const Index head_width = config.attention_config().resolved().key_width;
    tensors.push_back({"rope_freqs.weight", frequency_divisors(rotations, head_width)});
  }
  // The format's numbers for the type of most tensors.
  metadata.emplace_back("general.file_type", std::uint32_t{type == GgufType::f32   ? 0u
                                                           : type == GgufType::f16 ? 1u
                                                                                   : 7u});
  if (type == GgufType::q8_0) metadata.emplace_back("general.quantization_version", std::uint32_t{2});
  metadata.insert(metadata.end(), tokenizer.begin(), tokenizer.end());
  save_gguf(path, metadata, tensors);
}

}  // namespace tapeformer
