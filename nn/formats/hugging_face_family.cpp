#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/hugging_face_family.h>

namespace tapeformer {

const std::array<HuggingFaceFamily, 8>& hugging_face_families() {
  constexpr QkNorm kNone = QkNorm::none;
  constexpr SublayerNorms kInput = SublayerNorms::input;
  // type, title, architecture, key heads, context, epsilon, attention_bias, query_bias, mlp_bias, qk_norm,
  // sublayer_norms, window, windows, gemma
  static const std::array<HuggingFaceFamily, 8> families = {{
      {"gpt2", "GPT-2", "GPT2LMHeadModel", 0, 1024, 1e-5, false, false, false, kNone, kInput, false, false},
      {"llama", "Llama", "LlamaForCausalLM", 0, 2048, 1e-6, true, false, true, kNone, kInput, false, false},
      {"mistral", "Mistral", "MistralForCausalLM", 8, 131072, 1e-6, false, false, false, kNone, kInput, true,
       false},
      {"qwen2", "Qwen 2", "Qwen2ForCausalLM", 32, 32768, 1e-6, false, true, false, kNone, kInput, true, true},
      {"qwen3", "Qwen 3", "Qwen3ForCausalLM", 32, 32768, 1e-6, true, false, false, QkNorm::rms, kInput, true,
       true},
      {"olmo2", "OLMo 2", "Olmo2ForCausalLM", 0, 2048, 1e-5, true, false, false, QkNorm::joint,
       SublayerNorms::output, false, false},
      {"gemma2", "Gemma 2", "Gemma2ForCausalLM", 4, 8192, 1e-6, true, false, false, kNone,
       SublayerNorms::both, true, true, 2},
      {"gemma3_text", "Gemma 3 (text)", "Gemma3ForCausalLM", 4, 131072, 1e-6, true, false, false, QkNorm::rms,
       SublayerNorms::both, true, true, 3},
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

std::string hugging_face_titles(const std::string& joint) {
  std::string titles;
  for (const HuggingFaceFamily& family : hugging_face_families()) {
    const bool is_last = &family == &hugging_face_families().back();
    titles += (titles.empty() ? "" : is_last ? " " + joint + " " : ", ") + std::string(family.title);
  }
  return titles;
}

}  // namespace tapeformer
