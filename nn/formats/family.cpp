#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/families/families.h>

#include <algorithm>

namespace tapeformer {
namespace {

template <class Config>
bool has_type(const std::string& type) {
  const auto& all = families<Config>();
  return std::any_of(all.begin(), all.end(), [&](const auto& family) { return type == family.type; });
}

/// Throws:  CheckpointError for types that resemble those of a family
void refuse_relative(const std::string& type) {
  if (type == "qwen2_moe")
    throw CheckpointError("model_type " + type + " has experts of a kind that is not implemented");
  const auto refuse_images = [&](const char* remedy) {
    throw CheckpointError("model_type " + type +
                          " reads images too, which is not implemented; try its language model alone, as "
                          "transformers writes it with " +
                          remedy);
  };
  if (type == "gemma3") refuse_images("model.model.language_model.save_pretrained(folder)");
  if (type == "qwen3_5") refuse_images("AutoModelForCausalLM.from_pretrained(this).save_pretrained(folder)");
}

}  // namespace

template <>
const std::vector<Family>& families<DecoderOnlyConfig>() {
  static const std::vector<Family> families = {
      gpt2_family(),         llama_family(),       mistral_family(),     mixtral_family(),
      phi3_family(),         qwen2_family(),       qwen3_family(),       qwen3_moe_family(),
      smollm3_family(),      olmo2_family(),       olmo3_family(),       olmoe_family(),
      granite_family(),      gemma2_family(),      gemma3_family(),      nanochat_family(),
      bloom_family(),        diffllama_family(),   qwen3_next_family(),  qwen3_5_family(),
      olmo_hybrid_family(),  minicpm3_family(),    deepseek_v2_family(), deepseek_v3_family(),
      deepseek_v32_family(), glm_moe_dsa_family(), gpt_oss_family(),     kimi_linear_family(),
      bert_family(),         modernbert_family()};
  return families;
}

template <>
const std::vector<TranslationFamily>& families<EncoderDecoderConfig>() {
  static const std::vector<TranslationFamily> families = {marian_family(), bart_family(), mbart_family(),
                                                          m2m100_family(), t5_family(),   mt5_family()};
  return families;
}

template <class Config>
const FamilyOf<Config>& family_of_type(const std::string& type) {
  for (const FamilyOf<Config>& family : families<Config>())
    if (type == family.type) return family;
  refuse_relative(type);
  const char* const what = has_type<DecoderOnlyConfig>(type)      ? ", a language model"
                           : has_type<EncoderDecoderConfig>(type) ? ", a translation model"
                                                                  : "";
  throw CheckpointError(format("model_type must be one of {}; got {}{}",
                               joined(families<Config>(), ", ", &FamilyOf<Config>::type), type, what));
}

template <class Config>
std::string family_titles() {
  std::vector<std::string> titles;
  for (const FamilyOf<Config>& family : families<Config>()) titles.emplace_back(family.title);
  return alternatives(titles);
}

template const Family& family_of_type(const std::string&);
template const TranslationFamily& family_of_type(const std::string&);
template std::string family_titles<DecoderOnlyConfig>();
template std::string family_titles<EncoderDecoderConfig>();

}  // namespace tapeformer
