#include <tapeformer/examples/translation/marian_folder.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/formats/marian_npz.h>
#include <tapeformer/nn/formats/npz.h>
#include <tapeformer/tests/fuzz/families.h>

namespace tapeformer {
namespace {

constexpr const char *kGolden = TAPEFORMER_SOURCE_DIR "/tests/golden/hugging_face/",
                     *kMarianNpz = TAPEFORMER_SOURCE_DIR "/tests/golden/marian_post.npz";

std::vector<std::string> llama_weights() {
  std::vector<std::string> files{"hugging_face/llama/model.safetensors.index.json"};
  for (const char* number : {"1", "2", "3", "4"})
    files.push_back(std::string("hugging_face/llama/model-0000") + number + "-of-00004.safetensors");
  return files;
}

constexpr const char* kFolder = "translation_folders/m2m100/";
constexpr const char* kFolderFiles[] = {"tokenizer_config.json", "generation_config.json", "vocab.json"};

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

Seeds marian_npz_seeds() { return {load_npz(kMarianNpz).at("special:model.yml").data}; }

void read_marian_npz(const std::string& input) {
  static NpzArrays arrays = load_npz(kMarianNpz);
  arrays["special:model.yml"] = {"|i1", {static_cast<Index>(input.size())}, input};
  const std::string path = input_path("x.npz");
  save_npz(path, arrays);
  load_marian_npz(path);
}

Seeds marian_folder_seeds() {
  std::string vocabulary = "</s>: 0\n<unk>: 1\n";
  for (int id = 2; id < 28; ++id)
    vocabulary += "\"p" + std::to_string(id) + "\": " + std::to_string(id) + "\n";
  return {joined({marian_decoder_yml({"v.yml", "v.yml"}), vocabulary})};
}

void read_marian_folder(const std::string& input) {
  static const std::string folder =
      golden_copy("marian_own", {"marian_tokenizer/joint/source.spm", "marian_tokenizer/joint/target.spm"});
  static const bool copied = std::filesystem::copy_file(kMarianNpz, folder + "/model.npz",
                                                        std::filesystem::copy_options::overwrite_existing);
  const std::vector<std::string> files = separated(input, copied ? 2 : 0);
  put_input("marian_own/decoder.yml", files[0]);
  put_input("marian_own/v.yml", files[1]);
  const TranslationRun run = load_marian_folder(folder);
  run.words.target->decode(run.words.source->encode("a cat"));
}

Seeds translation_folder_seeds() {
  std::vector<std::string> files;
  for (const char* file : kFolderFiles)
    files.push_back(content_of(TAPEFORMER_SOURCE_DIR "/tests/golden/" + std::string(kFolder) + file));
  return {joined(files)};
}

void read_translation_folder(const std::string& input) {
  static const std::string folder =
      golden_copy("folder", {kFolder + std::string("config.json"), kFolder + std::string("model.safetensors"),
                             kFolder + std::string("sentencepiece.bpe.model")});
  const std::vector<std::string> files = separated(input, 3);
  for (std::size_t i = 0; i < files.size(); ++i)
    put_input(std::string("folder/") + kFolderFiles[i], files[i]);
  const TranslationRun run = TranslationRun::load(folder);
  run.words.target->decode(run.words.source->encode("a cat __fr__"));
  parse_tokenizer(sentence_tokenizers(), run.words.target->serialize(), "it");
}

}  // namespace

std::vector<Parser> foreign_model_parsers() {
  return {{"gpt2_config", gpt2_config_seeds, read_gpt2_config},
          {"llama_config", llama_config_seeds, read_llama_config},
          {"marian_config", marian_config_seeds, read_marian_config},
          {"marian_npz", marian_npz_seeds, read_marian_npz},
          {"marian_folder", marian_folder_seeds, read_marian_folder},
          {"translation_folder", translation_folder_seeds, read_translation_folder}};
}

}  // namespace tapeformer
