#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/marian.h>
#include <tapeformer/examples/translation/generation_config.h>
#include <tapeformer/tests/data/tokenizers/pieces_of_text.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/text.h>

using namespace tapeformer;

namespace {

Vocabularies marian_vocabularies() {
  const std::shared_ptr<const Tokenizer> words =
      marian_pieces().train(text_in({"the cat", "a dog sees the cat"}), 25);
  return {words, words};
}

/// The search of a folder with these settings, in generation_config.json or in config.json.
SearchConfig search_of(const std::string& json, const char* file = "generation_config.json") {
  const TemporaryFolder folder;
  write_bytes(folder.file(file), json);
  return read_generation_config(folder.file("."), marian_vocabularies());
}

}  // namespace

TEST_CASE("an export's file is read as the search that it describes") {
  const Vocabularies words = marian_vocabularies();
  const std::int32_t padding = words.target->padding();
  for (const char* file : {"generation_config.json", "config.json"}) {
    const SearchConfig search = search_of(generation_config_json(words, 30), file);
    CHECK(search.begin == padding);
    CHECK(search.end == 0);
    CHECK(search.never == TokenIds{padding});
    CHECK(search.max_tokens == 28);
    CHECK(search.beam == 5);
    CHECK(search.length_penalty == 1);
    CHECK(search.transformers->early_stopping == EarlyStopping::yes);
    CHECK(search.transformers->forced_end);
  }
}

TEST_CASE("settings are as `generate` takes them, and its defaults where they are missing") {
  const SearchConfig plain = search_of(R"({"num_beams": null})");
  CHECK(plain.beam == 1);
  CHECK(plain.max_tokens == 0);
  CHECK(plain.transformers->early_stopping == EarlyStopping::no);
  CHECK_FALSE(plain.transformers->forced_end);
  CHECK_FALSE(plain.renormalize);
  const SearchConfig other = search_of(
      R"({"early_stopping": "never", "renormalize_logits": true, "max_length": 9, "length_penalty": -2,
          "min_length": 4, "no_repeat_ngram_size": 3, "forced_bos_token_id": 7, "eos_token_id": [0],
          "bad_words_ids": [[0], [5]]})");
  CHECK(other.never == TokenIds{5});  // and not the end
  CHECK(other.min_tokens == 3);
  CHECK(other.no_repeat_ngram == 3);
  CHECK(other.forced == TokenIds{7});
  CHECK(other.transformers->early_stopping == EarlyStopping::never);
  CHECK(other.renormalize);
  CHECK(other.max_tokens == 8);
  CHECK(other.length_penalty == -2);
}

TEST_CASE("settings that would change outputs and are not supported are refused by name") {
  for (const char* setting :
       {R"("no_repeat_ngram_size": -1)", R"("do_sample": true)", R"("bad_words_ids": [[1, 2]])",
        R"("bad_words_ids": [[99]])", R"("forced_eos_token_id": 2)", R"("eos_token_id": [0, 2])",
        R"("early_stopping": 1)", R"("num_beams": 0)", R"("num_beams": "4")", R"("num_beams": 2.5)",
        R"("forced_bos_token_id": 4294967296)", R"("max_new_tokens": 5)",
        R"("max_length": 2, "forced_eos_token_id": 0)"}) {
    const std::string text = setting, name = text.substr(1, text.find('"', 1) - 1);
    CAPTURE(text);
    CHECK(has(message_of<CheckpointError>([&] { search_of("{" + text + "}"); }),
              "generation_config.json: has " + name + "="));
  }
}
