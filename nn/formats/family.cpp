#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

const std::vector<Family>& families() {
  static const std::vector<Family> families = {gpt2_family(),   llama_family(), mistral_family(),
                                               qwen2_family(),  qwen3_family(), olmo2_family(),
                                               gemma2_family(), gemma3_family()};
  return families;
}

const Family& family_of_type(const std::string& type) {
  for (const Family& family : families())
    if (type == family.type) return family;
  for (const char* const name : {"gpt_oss", "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2"}) {
    if (type == name) throw CheckpointError("model_type " + type + " has experts, which are not implemented");
  }
  if (type == "gemma3") {
    throw CheckpointError(
        "model_type gemma3 reads images too, which is not implemented; try its language model alone, as "
        "transformers writes it with model.model.language_model.save_pretrained(folder)");
  }
  throw CheckpointError(
      format("model_type must be one of {}; got {}", joined(families(), ", ", &Family::type), type));
}

std::string family_titles(const std::string& joint) {
  std::string titles;
  for (const Family& family : families()) {
    const bool is_last = &family == &families().back();
    titles += (titles.empty() ? "" : is_last ? " " + joint + " " : ", ") + std::string(family.title);
  }
  return titles;
}

}  // namespace tapeformer
