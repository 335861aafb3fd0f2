#include <tapeformer/examples/translation/marian_folder.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/formats/marian_npz.h>
#include <tapeformer/nn/formats/npz.h>
#include <tapeformer/tests/fuzz/parsers.h>

namespace tapeformer {
namespace {

constexpr const char *kGolden = TAPEFORMER_SOURCE_DIR "/tests/golden/",
                     *kMarianNpz = TAPEFORMER_SOURCE_DIR "/tests/golden/marian_post.npz",
                     *kFolder = "translation_folders/m2m100/";
constexpr const char* kFolderFiles[] = {"tokenizer_config.json", "generation_config.json", "vocab.json"};

/// Reads the config.json of a golden model.
template <class Model>
Parser config_parser(const char* name, const std::string& model, std::vector<std::string> files = {}) {
  const std::string folder = "hugging_face/" + model + "/";
  if (files.empty()) files = {"model.safetensors"};
  for (std::string& file : files) file.insert(0, folder);
  return {name, [=] { return Seeds{content_of(kGolden + folder + "config.json")}; },
          [=](const std::string& input) {
            const std::string copy = golden_copy(model, files);
            put_input(model + "/config.json", input);
            load_hugging_face<Model>(copy);
          }};
}

Parser llama_config_parser() {
  std::vector<std::string> files{"model.safetensors.index.json"};
  for (const char* number : {"1", "2", "3", "4"})
    files.push_back(std::string("model-0000") + number + "-of-00004.safetensors");
  return config_parser<DecoderOnly>("llama_config", "llama", files);
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
  const std::string folder =
      golden_copy("marian_own", {"marian_tokenizer/joint/source.spm", "marian_tokenizer/joint/target.spm"});
  put_input("marian_own/model.npz", content_of(kMarianNpz));
  const std::vector<std::string> files = separated(input, 2);
  put_input("marian_own/decoder.yml", files[0]);
  put_input("marian_own/v.yml", files[1]);
  const TranslationRun run = load_marian_folder(folder);
  run.words.target->decode(run.words.source->encode("a cat"));
}

Seeds translation_folder_seeds() {
  std::vector<std::string> files;
  for (const char* file : kFolderFiles) files.push_back(content_of(kGolden + std::string(kFolder) + file));
  return {joined(files)};
}

void read_translation_folder(const std::string& input) {
  const std::string folder =
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
  return {config_parser<DecoderOnly>("gpt2_config", "gpt2"),
          llama_config_parser(),
          config_parser<EncoderDecoder>("marian_config", "marian"),
          {"marian_npz", marian_npz_seeds, read_marian_npz},
          {"marian_folder", marian_folder_seeds, read_marian_folder},
          {"translation_folder", translation_folder_seeds, read_translation_folder}};
}

}  // namespace tapeformer
