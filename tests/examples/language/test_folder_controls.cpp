#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/sentencepiece_text.h>
#include <tapeformer/examples/language/gguf_tokenizer.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/text.h>

#include <map>

using namespace tapeformer;

namespace {

using Files = std::map<std::string, std::string>;

const TextSource kMats = [](const auto& reader) { reader("the cat sat on the mat, the cat\n"); };

/// A tokenizer.json with "</s>" and "<|im_end|>", and no template that names them.
std::string letters_json() {
  return R"({"added_tokens": [{"id": 2, "content": "</s>", "special": true}],
    "normalizer": {"type": "Prepend", "prepend": "_"},
    "model": {"type": "BPE", "vocab": {"_": 0, "a": 1, "</s>": 2, "<s>": 3, "_a": 4}, "merges": ["_ a"]}})";
}

/// A folder with a model of SentencePiece.
Files pieces(Files more = {}) {
  more["tokenizer.model"] = sentencepiece_model(*train_sentencepiece_tokenizer(kMats, 280));
  return more;
}

/// GPT-2's two files.
Files merges(Files more = {}) {
  const BytePairFiles both = byte_pair_files(*train_byte_pair_tokenizer(kMats, 262));
  more["vocab.json"] = both.vocabulary, more["merges.txt"] = both.merges;
  return more;
}

std::shared_ptr<const Tokenizer> found(const Files& files) {
  const TemporaryFolder folder;
  for (const auto& [name, content] : files) write_bytes(folder.file(name), content);
  return find_tokenizer(folder.file(""));
}

std::string refused(const Files& files) {
  return message_of<Error>([&] { found(files); });
}

/// A field of the tokenizer in a GGUF file.
template <class T>
T in_gguf(const Tokenizer& tokenizer, const char* field, T missing = {}) {
  for (const auto& [name, value] : gguf_tokenizer(tokenizer, 290))
    if (name == std::string("tokenizer.ggml.") + field) return std::get<T>(value);
  return missing;
}

std::shared_ptr<const Tokenizer> exported_again(const Tokenizer& tokenizer) {
  const TemporaryFolder folder;
  export_tokenizer(tokenizer, folder.file(""));
  return find_tokenizer(folder.file(""));
}

}  // namespace

TEST_CASE(
    "ends are generation_config.json's, else config.json's, else tokenizer_config.json's, else its own") {
  const std::string named = R"({"eos_token": {"content": "<s>", "lstrip": false}})";
  const auto ends = [&](Files files) {
    files["tokenizer.json"] = letters_json();
    return found(files)->ends();
  };
  CHECK(ends({}).empty());
  CHECK(ends({{"tokenizer_config.json", named}}) == Ids{3});
  CHECK(ends({{"special_tokens_map.json", R"({"eos_token": "</s>"})"}}) == Ids{2});
  CHECK(ends({{"tokenizer_config.json", named}, {"config.json", R"({"eos_token_id": 2})"}}) == Ids{2});
  CHECK(ends({{"tokenizer_config.json", named}, {"config.json", R"({"eos_token_id": null})"}}) == Ids{3});
  CHECK(ends({{"generation_config.json", R"({"eos_token_id": [4, 2]})"},
              {"config.json", R"({"eos_token_id": 2})"}}) == Ids{4, 2});
  CHECK(ends({{"generation_config.json", "{}"}, {"config.json", R"({"eos_token_id": [-1]})"}}).empty());
  CHECK(found(pieces())->ends() == Ids{2});
  CHECK(found(pieces({{"config.json", R"({"eos_token_id": [2, 9]})"}}))->ends() == Ids{2, 9});
  CHECK(found(merges({{"config.json", R"({"eos_token_id": 50256})"}}))->end() == 261);  // GPT-2's default
  CHECK(has(refused(pieces({{"config.json", R"({"eos_token_id": "</s>"})"}})),
            "config.json: has an eos_token_id that is neither"));
  CHECK(has(refused(pieces({{"generation_config.json", "[]"}})), "generation_config.json: is not"));
}

TEST_CASE("a tokenizer.json comes before a tokenizer.model beside it, except where the model is asked for") {
  CHECK(found(pieces({{"tokenizer.json", letters_json()}}))->encode("a</s>") == Ids{4, 2});
  const TemporaryFolder folder;
  CHECK_FALSE(find_sentencepiece(folder.file("")));
  for (const auto& [name, content] : pieces({{"config.json", R"({"eos_token_id": [2, 3]})"}}))
    write_bytes(folder.file(name), content);
  const std::string json = letters_json();
  write_bytes(folder.file("tokenizer.json"),
              R"({"added_tokens": [{"id": 285, "content": "<|x|>"},)" + json.substr(json.find('[') + 1));
  const auto model = find_sentencepiece(folder.file(""));
  CHECK(model->kind() == std::string("sentencepiece"));
  CHECK(model->encode("<|x|>") == Ids{285});
  CHECK(model->ends() == Ids{2, 3});
}

TEST_CASE("tokens added by other files are found, whatever the kind of tokenizer") {
  const std::string decoder = R"({"added_tokens_decoder": {
    "280": {"content": "<|im_start|>"}, "281": {"content": "<|im_end|>", "special": true}}})",
                    list = R"({"<|im_start|>": 280, "<|im_end|>": 281})",
                    special = R"({"additional_special_tokens": ["<|im_end|>"]})";
  for (const Files& files : {pieces(), merges()}) {
    const auto plain = found(files);
    const Ids before = plain->encode("the cat");
    for (const Files& more : {Files{{"tokenizer_config.json", decoder}},
                              Files{{"added_tokens.json", list}, {"special_tokens_map.json", special}}}) {
      Files all = files;
      all.insert(more.begin(), more.end());
      const auto tokenizer = found(all);
      Ids expected = before;
      expected.push_back(280);
      expected.push_back(281);
      CHECK(tokenizer->encode("the cat<|im_start|><|im_end|>") == expected);
      CHECK(tokenizer->decode(expected) == "the cat<|im_start|>");
      CHECK(tokenizer->vocabulary_size() == 282);
      const auto again = exported_again(*tokenizer);
      CHECK(again->encode("the<|im_start|>cat") == tokenizer->encode("the<|im_start|>cat"));
      CHECK(again->bytes_of(281).empty());
      CHECK(in_gguf<std::vector<std::string>>(*tokenizer, "tokens").at(280) == "<|im_start|>");
      CHECK(in_gguf<Ids>(*tokenizer, "token_type").at(280) == 4);
      CHECK(in_gguf<Ids>(*tokenizer, "token_type").at(281) == 3);
    }
  }
  const auto lettered =
      found({{"tokenizer.json", letters_json()}, {"tokenizer_config.json", R"({"added_tokens_decoder": {
      "2": {"content": "</s>", "special": true}, "5": {"content": "<|x|>", "normalized": false}}})"}});
  CHECK(lettered->encode("a<|x|></s>") == Ids{4, 5, 2});
  CHECK(exported_again(*lettered)->encode("a<|x|></s>") == Ids{4, 5, 2});
}

TEST_CASE("a tokenizer's own control tokens are text, though a folder lists them too") {
  const std::string own = R"({"added_tokens_decoder": {"0": {"content": "<unk>"}, "1": {"content": "<s>"},
                             "2": {"content": "</s>"}}})";
  CHECK(found(pieces({{"tokenizer_config.json", own}}))->serialize() == found(pieces())->serialize());
}

TEST_CASE("a malformed added token is refused") {
  for (const char* wrong :
       {R"({"added_tokens_decoder": {"x": {"content": "a"}}})", R"({"added_tokens_decoder": {"7": "a"}})",
        R"({"added_tokens_decoder": {"7": {}}})"})
    CHECK(has(refused(pieces({{"tokenizer_config.json", wrong}})), "is not an added token"));
  CHECK(refused(pieces({{"added_tokens.json", R"({"<x>": "y"})"}})) != "nothing was thrown");
}

TEST_CASE("add_bos_token says whether texts begin with a token, here and after an export") {
  const auto begin = [](const char* config) {
    const auto tokenizer = found(pieces({{"tokenizer_config.json", config}}));
    CHECK(exported_again(*tokenizer)->begin() == tokenizer->begin());
    CHECK(in_gguf<bool>(*tokenizer, "add_bos_token", true) == tokenizer->begin().has_value());
    return tokenizer->begin();
  };
  CHECK(begin("{}") == 1);
  CHECK(begin(R"({"add_bos_token": true})") == 1);
  CHECK_FALSE(begin(R"({"add_bos_token": false})"));
  CHECK(begin(R"({"add_bos_token": true, "bos_token": "</s>"})") == 2);
  CHECK(found(merges({{"tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<|endoftext|>"})"}}))
            ->begin() == 261);
  CHECK(found({{"tokenizer.json", letters_json()},
               {"tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<s>"})"}})
            ->begin() == 3);
  CHECK(
      has(refused(merges({{"tokenizer_config.json", R"({"add_bos_token": true})"}})), "add_bos_token=true"));
}

TEST_CASE("a switch that asks for what the tokenizer does not do is refused by name") {
  const auto config = [](const char* text) { return Files{{"tokenizer_config.json", text}}; };
  for (const char* fits :
       {R"({"add_prefix_space": true, "legacy": true})", R"({"clean_up_tokenization_spaces": true})",
        R"({"add_eos_token": true, "add_prefix_space": null})"})
    CHECK(refused(pieces(config(fits))) == "nothing was thrown");
  CHECK(has(refused(pieces(config(R"({"add_prefix_space": false})"))), "add_prefix_space=false"));
  CHECK(has(refused(merges(config(R"({"add_prefix_space": true})"))), "add_prefix_space=true"));
  CHECK(has(refused(merges(config(R"({"split_special_tokens": true})"))), "split_special_tokens=true"));
  CHECK(has(refused(pieces(config(R"({"add_bos_token": 1})"))), "neither true nor false"));
  Files words = config(R"({"clean_up_tokenization_spaces": true})");
  words["tokenizer.json"] = R"({"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1}}})";
  CHECK(has(refused(words), "clean_up_tokenization_spaces=true"));
  words["tokenizer.json"] = letters_json();
  CHECK(refused(words) == "nothing was thrown");
  words["tokenizer_config.json"] = R"({"add_eos_token": true})";
  CHECK(has(refused(words), "add_eos_token=true"));
}
