#include <doctest/doctest.h>
#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/tokenizers/marian.h>
#include <tapeformer/data/tokenizers/text_vocabulary.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <tapeformer/tests/data/tokenizers/pieces_of_text.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/text.h>

#include <algorithm>

using namespace tapeformer;

namespace {

const std::string kMarianGolden = TAPEFORMER_SOURCE_DIR "/tests/golden/marian_tokenizer/";

/// The ids that transformers gives a text, and the text of its ids as a target.
struct MarianCase {
  std::string text;
  Ids source, target;
  std::string decoded;
};

std::vector<MarianCase> marian_cases(const std::string& name) {
  static const auto all = parse_json(read_file(kMarianGolden + "cases.json"));
  std::vector<MarianCase> cases;
  for (const auto& one : all.at(name)) cases.push_back({one[0], one[1], one[2], one[3]});
  return cases;
}

using MarianFiles = std::map<std::string, std::string>;

/// The tokenizers of a folder with these files.
auto loaded_from(const MarianFiles& files, std::optional<std::int32_t> begin = {}) {
  const TemporaryFolder folder;
  for (const auto& [name, content] : files) write_bytes(folder.file(name), content);
  return load_marian_tokenizers(folder.file("."), begin);
}

const std::vector<std::string> kMarianSentences = {"the cat sees the dog", "the dog likes the cat",
                                                   "a cat and a dog"};

}  // namespace

TEST_CASE(
    "ids and texts are those of transformers, also after our own file and theirs are written and read") {
  for (const std::string name : {"joint", "separate"}) {
    const auto [source, target] = load_marian_tokenizers(kMarianGolden + name);
    const auto [source_again, target_again] = loaded_from(marian_files(*source, *target));
    const auto parsed = parse_tokenizer(sentence_tokenizers(), target->serialize(), "it");
    CHECK(parsed->serialize() == target->serialize());
    CHECK(source_again->serialize() == source->serialize());
    CHECK(target_again->serialize() == target->serialize());
    for (const MarianCase& one : marian_cases(name)) {
      CAPTURE(one.text);
      CHECK(source->encode(one.text) == one.source);
      CHECK(target->encode(one.text) == one.target);
      const bool ends = std::count(one.target.begin(), one.target.end(), *target->end()) > 0;
      if (!ends) CHECK(target->decode(one.target) == one.decoded);
    }
  }
}

TEST_CASE("a trained one has the end first and padding last, from which decoders start") {
  const auto words = marian_pieces().train(text_in(kMarianSentences), 30);
  CHECK(words->end() == 0);
  CHECK(words->piece(1) == "<unk>");
  CHECK(words->vocabulary_size() <= 30);
  CHECK(words->piece(static_cast<std::int32_t>(words->vocabulary_size() - 1)) == "<pad>");
  CHECK(words->begin() == words->padding());
  CHECK(words->padding() == words->vocabulary_size() - 1);
  for (const std::string& sentence : kMarianSentences) {
    Ids ids = words->encode(sentence);
    CHECK(std::count(ids.begin(), ids.end(), 1) == 0);
    ids.insert(ids.end(), {words->padding(), *words->end(), 5});
    CHECK(words->decode(ids) == sentence);
  }
}

TEST_CASE("other pieces of SentencePiece are written with their ids, and words are refused") {
  for (const char* kind : {"bpe", "unigram"}) {
    const auto own = tokenizer_kind(sentence_tokenizers(), kind).train(text_in(kMarianSentences), 30);
    const auto [source, target] = loaded_from(marian_files(*own, *own), kBegin);
    CHECK(target->begin() == kBegin);
    CHECK(target->end() == kEnd);
    CHECK(target->padding() == kPadding);
    for (const std::string& sentence : kMarianSentences) {
      CHECK(source->encode(sentence) == own->encode(sentence));
      CHECK(target->decode(own->encode(sentence)) == sentence);
    }
  }
  const auto words = tokenizer_kind(sentence_tokenizers(), "word").train(text_in(kMarianSentences), 30);
  CHECK(message_of<DataError>([&] { marian_files(*words, *words); }) ==
        "[tokenizer] MarianMT needs a SentencePiece tokenizer; got kind word; try a model trained with "
        "--tokenizer marian, unigram or bpe");
}

TEST_CASE("files for Marian are read as the same tokenizers, with ids of the models or of their own") {
  const auto trained = std::shared_ptr<const Tokenizer>(marian_pieces().train(text_in(kMarianSentences), 30));
  const auto [joint, joint_target] = load_marian_tokenizers(kMarianGolden + "joint");
  for (const auto& [source, target, name] :
       {std::tuple(trained, trained, "source.spm"), {joint, joint_target, "vocab.yml"}}) {
    const TemporaryFolder folder;
    const auto [names, files] = marian_vocabulary_files(*source, *target);
    for (const auto& [file, content] : files) write_bytes(folder.file(file), content);
    CHECK(names[0] == name);
    const auto [source_again, target_again] =
        load_marian_vocabularies(folder.file(names[0]), folder.file(names[1]));
    CHECK(source_again->padding() == source->padding());
    CHECK(target_again->end() == target->end());
    for (const MarianCase& one : marian_cases("joint")) {
      const Ids ids = source->encode(one.text);
      CHECK(source_again->encode(one.text) == ids);
      CHECK(target_again->decode(ids) == target->decode(ids));
    }
    write_bytes(folder.file("bad.yml"), "a: 0\n<unk>: 1\n");
    CHECK(message_of<DataError>([&] { load_marian_vocabularies(folder.file("bad.yml"), ""); }) ==
          folder.file("bad.yml") + ": lacks </s>");
  }
  const auto own = tokenizer_kind(sentence_tokenizers(), "bpe").train(text_in(kMarianSentences), 30);
  CHECK(message_of<DataError>([&] { marian_vocabulary_files(*own, *own); }) ==
        "[export] padding must be the last token; try a model trained with --tokenizer marian");
}

TEST_CASE("characters that YAML would change or refuse are written as escapes") {
  const auto trained = marian_pieces().train(text_in(kMarianSentences), 30);
  MarianFiles files = marian_files(*trained, *trained);
  const std::string special = "a\xc2\x85\x7f\xe2\x80\xa8\xf0\x9f\x98\x80\uffff";
  const std::int32_t padding = trained->padding();
  files["vocab.json"] = replaced(
      files["vocab.json"], "\"<pad>\": " + std::to_string(padding),
      "\"" + special + "\": " + std::to_string(padding) + ", \"<pad>\": " + std::to_string(padding + 1));
  const auto [source, target] = loaded_from(files);
  const TemporaryFolder folder;
  const std::string path = folder.file("vocab.yml");
  write_bytes(path, marian_vocabulary_files(*source, *target).files.at("vocab.yml"));
  CHECK(read_yaml_vocabulary(path).back() == special);
}

TEST_CASE("files that say more than is supported, or too little, are refused by name") {
  const auto [source, target] = load_marian_tokenizers(kMarianGolden + "joint");
  const auto files = marian_files(*source, *target);
  const auto refusal = [&](const char* name, const std::string& content) {
    auto changed = files;
    for (auto& [file, text] : changed)
      if (file == name) text = content;
    const std::string text = message_of<DataError>([&] { loaded_from(changed); });
    return text.substr(text.find("/./") + 3);
  };
  const auto of_config = [&](const char* fields) { return refusal("tokenizer_config.json", fields); };
  CHECK(of_config(R"({"additional_special_tokens": ["<x>"]})") ==
        "tokenizer_config.json: has additional_special_tokens=[\"<x>\"], which is not supported; try without "
        "it");
  CHECK(has(of_config(R"({"added_tokens_decoder": {"9": {"content": "<x>"}}})"), "added_tokens_decoder"));
  CHECK(of_config(R"({"unk_token": "<none>"})") == "vocab.json: lacks <none>, the unk_token");
  CHECK(has(refusal("source.spm", "x"), "source.spm: is not a SentencePiece model"));
}
