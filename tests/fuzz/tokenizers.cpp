#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/byte_tokenizer.h>
#include <tapeformer/data/tokenizers/character_tokenizer.h>
#include <tapeformer/data/tokenizers/sentencepiece_model.h>
#include <tapeformer/data/tokenizers/sentencepiece_sentences.h>
#include <tapeformer/data/tokenizers/sentencepiece_text.h>
#include <tapeformer/data/tokenizers/text_vocabulary.h>
#include <tapeformer/data/tokenizers/tokenizer.h>
#include <tapeformer/data/tokenizers/tokenizer_controls.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/tests/fuzz/parsers.h>

#include <algorithm>
#include <filesystem>

namespace tapeformer {
namespace {

constexpr const char* kText = "She sees the cat \xe2\x80\x94 the d\xc3\xb6g, and 12 cats see the cat.\n";

TextSource source() {
  return [](const std::function<void(std::string_view)>& reader) {
    for (int i = 0; i < 4; ++i) reader(kText);
  };
}

/// Uses a tokenizer as a program does after reading it.
void use(const Tokenizer& tokenizer) {
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    tokenizer.bytes_of(id);
    tokenizer.piece(id);
  }
  tokenizer.serialize();
  tokenizer.safe_cut(kText);
  tokenizer.begin();
  tokenizer.end();
  tokenizer.decode(tokenizer.encode(kText));
}

/// With a fitting size and checksum: authors of hostile files write those too.
std::string repaired(const std::string& input) {
  const std::size_t end = std::min(input.find('\n'), input.size());
  const std::size_t kind = std::min(input.find(' '), end),
                    kind_end = std::min(input.find(' ', kind + 1), end);
  const std::string name = kind < end ? input.substr(kind + 1, kind_end - kind - 1) : "word";
  return write_tokenizer_file(name.c_str(), input.substr(std::min(end + 1, input.size())));
}

Seeds vocabulary_seeds() {
  Seeds seeds;
  for (const char* kind : {"word", "character"})
    seeds.push_back(tokenizer_kind(sentence_tokenizers(), kind).train(source(), 100)->serialize());
  return seeds;
}

void read_vocabulary(const std::string& input) {
  use(*parse_tokenizer(sentence_tokenizers(), repaired(input), "vocabulary"));
  use(*parse_tokenizer(sentence_tokenizers(), input, "vocabulary"));
}

Seeds text_tokenizer_seeds() {
  TokenizerControls controls;
  controls.ends = {1};
  controls.added = nlohmann::json::array({{{"id", 256}, {"content", "<|x|>"}, {"rstrip", true}}});
  return {train_character_tokenizer(source())->serialize(), make_byte_tokenizer()->serialize(),
          train_byte_pair_tokenizer(source(), 270)->serialize(),
          with_controls(make_byte_tokenizer(), controls, "it")->serialize()};
}

void read_text_tokenizer(const std::string& input) {
  use(*parse_tokenizer(text_tokenizers(), repaired(input), "tokenizer"));
  use(*parse_tokenizer(text_tokenizers(), input, "tokenizer"));
}

Seeds byte_pairs_seeds() {
  const BytePairFiles files = byte_pair_files(*train_byte_pair_tokenizer(source(), 270));
  return {joined({files.merges, files.vocabulary,
                  R"({"added_tokens_decoder":{"270":{"content":"<|x|>","lstrip":true}},"add_bos_token":true,
"bos_token":{"content":"<|x|>"},"add_prefix_space":false})",
                  R"({"eos_token_id":[269,270]})"})};
}

void read_byte_pairs(const std::string& input) {
  const std::vector<std::string> files = separated(input, 4);
  std::filesystem::create_directories(input_path("bpe"));
  put_input("bpe/merges.txt", files[0]);
  put_input("bpe/vocab.json", files[1]);
  put_input("bpe/tokenizer_config.json", files[2]);
  put_input("bpe/generation_config.json", files[3]);
  use(*find_tokenizer(input_path("bpe")));
}

Seeds tokenizer_json_seeds() {
  const auto golden =
      nlohmann::json::parse(content_of(TAPEFORMER_SOURCE_DIR "/tests/golden/tokenizer_json.json"));
  Seeds seeds;
  for (std::size_t i = 0; i < golden.at("cases").size(); i += 3)  // of each model, and of most other parts
    seeds.push_back(golden.at("cases").at(i).at("file"));
  return seeds;
}

void read_tokenizer_json(const std::string& input) {
  use(*find_tokenizer(put_input("tokenizer.json", input)));
}

Seeds sentencepiece_seeds() {
  return {content_of(TAPEFORMER_SOURCE_DIR "/tests/golden/marian_tokenizer/joint/source.spm"),
          train_sentencepiece({{"vocab_size", "40"}, {"normalization_rule_name", "nmt_nfkc"}}, {kText})};
}

void read_sentencepiece(const std::string& input) {
  const std::string path = put_input("x.model", input);
  use(*load_sentencepiece_tokenizer(path));
  use(*load_sentencepiece_model(path));
}

Seeds text_vocabulary_seeds() { return {"the 12\nhou@@ 7\nse 7\n", "</s>\n<unk>\nthe\nd\xc3\xb6g\n"}; }

void read_vocabulary_text(const std::string& input) {
  use(*load_text_vocabulary(put_input("dict.txt", input)));
}

}  // namespace

std::vector<Parser> tokenizer_parsers() {
  return {{"vocabulary", vocabulary_seeds, read_vocabulary},
          {"text_tokenizer", text_tokenizer_seeds, read_text_tokenizer},
          {"byte_pairs", byte_pairs_seeds, read_byte_pairs},
          {"tokenizer_json", tokenizer_json_seeds, read_tokenizer_json},
          {"sentencepiece", sentencepiece_seeds, read_sentencepiece},
          {"text_vocabulary", text_vocabulary_seeds, read_vocabulary_text}};
}

}  // namespace tapeformer
