#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/formats/hugging_face_config.h>
#include <tapeformer/nn/formats/hugging_face_names.h>
#include <tapeformer/nn/formats/safetensors_folder.h>
#include <tapeformer/tests/fuzz/families.h>

namespace tapeformer {
namespace {

constexpr const char* kGolden = TAPEFORMER_SOURCE_DIR "/tests/golden/hugging_face/";

std::vector<std::string> llama_weights() {
  std::vector<std::string> files{"hugging_face/llama/model.safetensors.index.json"};
  for (const char* number : {"1", "2", "3", "4"})
    files.push_back(std::string("hugging_face/llama/model-0000") + number + "-of-00004.safetensors");
  return files;
}

/// A folder with the tensors that a Llama of the golden one's sizes has in Meta's files.
std::string meta_folder() {
  const DecoderOnlyConfig config = hugging_face_config(llama_config_seeds().front());
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const ForeignParameter& parameter : foreign_parameters(ForeignFormat::meta, config)) {
    for (const ForeignPart& part : parameter.parts)
      tensors.emplace_back(part.name, Tensor::zeros(part.shape));
  }
  const std::string folder = golden_copy("meta", {});
  save_safetensors(folder + "/consolidated.safetensors", tensors);
  return folder;
}

}  // namespace

Seeds gpt2_config_seeds() { return {content_of(kGolden + std::string("gpt2/config.json"))}; }

void read_gpt2_config(const std::string& input) {
  static const std::string folder = golden_copy("gpt2", {"hugging_face/gpt2/model.safetensors"});
  put_input("gpt2/config.json", input);
  load_hugging_face(folder);
}

Seeds llama_config_seeds() { return {content_of(kGolden + std::string("llama/config.json"))}; }

void read_llama_config(const std::string& input) {
  static const std::string folder = golden_copy("llama", llama_weights());
  put_input("llama/config.json", input);
  load_hugging_face(folder);
}

Seeds meta_params_seeds() {
  return {R"({"dim": 18, "n_layers": 2, "n_heads": 6, "n_kv_heads": 2, "vocab_size": -1, "head_dim": 4,
  "multiple_of": 2, "ffn_dim_multiplier": 1.3, "norm_eps": 1e-05, "rope_theta": 500.0,
  "use_scaled_rope": true, "rope_scaling_factor": 8, "rope_high_freq_factor": 4, "max_seq_len": 32})"};
}

void read_meta_params(const std::string& input) {
  static const std::string folder = meta_folder();
  put_input("meta/params.json", input);
  load_hugging_face(folder);
}

}  // namespace tapeformer
