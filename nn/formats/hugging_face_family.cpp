#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/hugging_face_family.h>

namespace tapeformer {

const std::array<HuggingFaceFamily, 8>& hugging_face_families() {
  constexpr QkNorm kNone = QkNorm::none;
  constexpr SublayerNorms kInput = SublayerNorms::input;
  // type, architecture, what chooses it, key heads, context, epsilon, attention_bias, query_bias, mlp_bias,
  // qk_norm, sublayer_norms, window, windows, gemma
  static const std::array<HuggingFaceFamily, 8> families = {{
      {"gpt2", "GPT2LMHeadModel", "layer norm", 0, 1024, 1e-5, false, false, false, kNone, kInput, false,
       false},
      {"llama", "LlamaForCausalLM", "RMS norm", 0, 2048, 1e-6, true, false, true, kNone, kInput, false,
       false},
      {"mistral", "MistralForCausalLM", "RMS norm and a window in all layers", 8, 131072, 1e-6, false, false,
       false, kNone, kInput, true, false},
      {"qwen2", "Qwen2ForCausalLM", "RMS norm and biases of queries, keys and values alone", 32, 32768, 1e-6,
       false, true, false, kNone, kInput, true, true},
      {"qwen3", "Qwen3ForCausalLM", "RMS norm, of queries and keys too,", 32, 32768, 1e-6, true, false, false,
       QkNorm::rms, kInput, true, true},
      {"olmo2", "Olmo2ForCausalLM", "RMS norm, of all queries and of all keys too,", 0, 2048, 1e-5, true,
       false, false, QkNorm::joint, SublayerNorms::output, false, false},
      {"gemma2", "Gemma2ForCausalLM", "norms of what sublayers read and of what they add", 4, 8192, 1e-6,
       true, false, false, kNone, SublayerNorms::both, true, true, 2},
      {"gemma3_text", "Gemma3ForCausalLM",
       "norms of what sublayers read and of what they add, and of queries and keys,", 4, 131072, 1e-6, true,
       false, false, QkNorm::rms, SublayerNorms::both, true, true, 3},
  }};
  return families;
}

const HuggingFaceFamily& hugging_face_family(const std::string& type) {
  std::string types;
  for (const HuggingFaceFamily& family : hugging_face_families()) {
    if (type == family.type) return family;
    types += (types.empty() ? "" : ", ") + std::string(family.type);
  }
  for (const char* const name : {"gpt_oss", "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2"}) {
    if (type == name) throw CheckpointError("model_type " + type + " has experts, which are not implemented");
  }
  if (type == "gemma3") {
    throw CheckpointError(
        "model_type gemma3 reads images too, which is not implemented; try its language model alone, as "
        "transformers writes it with model.model.language_model.save_pretrained(folder)");
  }
  throw CheckpointError("model_type must be one of " + types + "; got " + type);
}

const HuggingFaceFamily& basic_family(const DecoderOnlyConfig& config) {
  return hugging_face_family(std::string(config.norm == NormKind::layer ? "gpt2" : "llama"));
}

const HuggingFaceFamily& hugging_face_family(const DecoderOnlyConfig& config) {
  const AttentionConfig& attention = config.attention;
  if (config.norm == NormKind::layer) return basic_family(config);
  if (config.sublayer_norms == SublayerNorms::both)
    return hugging_face_family(std::string(attention.qk_norm == QkNorm::rms ? "gemma3_text" : "gemma2"));
  if (attention.qk_norm == QkNorm::rms) return hugging_face_family(std::string("qwen3"));
  if (attention.qk_norm == QkNorm::joint) return hugging_face_family(std::string("olmo2"));
  if (attention.bias && !attention.output_bias.value_or(true))
    return hugging_face_family(std::string("qwen2"));
  return config.window > 0 ? hugging_face_family(std::string("mistral")) : basic_family(config);
}

}  // namespace tapeformer
