#include <tapeformer/nn/formats/hugging_face.h>
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

Seeds marian_config_seeds() { return {content_of(kGolden + std::string("marian/config.json"))}; }

void read_marian_config(const std::string& input) {
  static const std::string folder = golden_copy("marian", {"hugging_face/marian/model.safetensors"});
  put_input("marian/config.json", input);
  load_hugging_face<EncoderDecoder>(folder);
}

}  // namespace tapeformer
