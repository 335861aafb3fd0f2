#include <tapeformer/examples/language/export.h>
#include <tapeformer/examples/language/gguf_tokenizer.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/tests/examples/language/language_case.h>
#include <tapeformer/tests/nn/formats/gguf_reader.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

using namespace tapeformer;

namespace {

/// A run of a few steps; returns its folder.
std::string trained(const TemporaryFolder& temporary, LanguageOptions options) {
  options.training.steps = 5, options.training.validate_every = 5;
  const RunFolder folder(temporary.file("run"));
  CHECK(train_language_model(folder, options, {}) == kExitSuccess);
  return folder.path();
}

ExportOptions exported(const TemporaryFolder& temporary) {
  ExportOptions options;
  options.run = temporary.file("run");
  options.output = temporary.file("exported");
  return options;
}

}  // namespace

TEST_SUITE("examples/language/export") {
  TEST_CASE("an exported model comes back with its weights and its tokenizer, of every kind") {
    const CapturedLog log, output(stdout);
    for (const std::string kind : {"character", "byte", "bpe", "sentencepiece"}) {
      const TemporaryFolder temporary;
      LanguageOptions options = tiny_options(temporary);
      options.data.tokenizer = kind;
      options.data.vocabulary = 270;
      const std::string run = trained(temporary, options), text = walk(60, 3);
      CHECK(export_model(exported(temporary)) == kExitSuccess);
      const LanguageRun before = LanguageRun::load(run),
                        after = LanguageRun::load(temporary.file("exported"));
      const std::vector<std::int32_t> ids = before.tokenizer->encode(text);
      CHECK(after.tokenizer->encode(text) == ids);
      CHECK(after.tokenizer->vocabulary_size() == before.tokenizer->vocabulary_size());
      const Tensor inputs = Tensor::empty({1, 8}, DType::i32);
      std::copy_n(ids.begin(), 8, inputs.data<std::int32_t>());
      const Tensor expected = before.model(inputs), got = after.model(inputs);
      REQUIRE(got.elements() == expected.elements());
      double most = 0;
      for (Index i = 0; i < got.elements(); ++i) most = std::max(most, std::fabs(got.at(i) - expected.at(i)));
      CHECK_BELOW(most, 1e-5);
    }
  }

  TEST_CASE("a GGUF file has the model and the tokenizer") {
    const CapturedLog log, output(stdout);
    const TemporaryFolder temporary;
    LanguageOptions options = tiny_options(temporary);
    options.model.activation = Unary::gelu_tanh;
    trained(temporary, options);
    ExportOptions asked = exported(temporary);
    asked.format = "gguf";
    CHECK(export_model(asked) == kExitSuccess);
    const GgufReader file(read_bytes(asked.output));
    CHECK(file.lists.at("tokenizer.ggml.tokens") ==
          std::vector<std::string>{"a", "b", "c", "d", "e", "f", "\u00c3\u00a9"});
    CHECK(file.lists.at("tokenizer.ggml.merges") == std::vector<std::string>{"\u00c3 \u00a9"});
    CHECK(file.tensors.at("blk.0.attn_qkv.weight").type == 1);
    CHECK(message_of<DataError>([&] { export_model(asked); }).find("already exists") != std::string::npos);
  }

  TEST_CASE("tokenizers of every kind as GGUF's metadata") {
    const auto text_of = [](const GgufMetadata& metadata, const char* key) {
      for (const auto& [name, value] : metadata)
        if (name == std::string("tokenizer.ggml.") + key) return std::get<std::string>(value);
      return std::string();
    };
    const auto id_of = [](const GgufMetadata& metadata, const char* key) {
      for (const auto& [name, value] : metadata)
        if (name == std::string("tokenizer.ggml.") + key) return std::get<std::uint32_t>(value);
      return ~0u;
    };
    const auto list_of = [](const GgufMetadata& metadata, const char* key, auto example) {
      for (const auto& [name, value] : metadata)
        if (name == std::string("tokenizer.ggml.") + key)
          return std::get<std::vector<decltype(example)>>(value);
      return std::vector<decltype(example)>();
    };
    const TextSource source = [](const auto& reader) { reader("ab ab ab\nabc abc\n"); };
    const GgufMetadata bytes = gguf_tokenizer(*make_byte_tokenizer(), 256);
    CHECK(text_of(bytes, "model") == "gpt2");
    CHECK(list_of(bytes, "tokens", std::string()).at(32) == "\u0120");
    CHECK(list_of(bytes, "merges", std::string()).empty());
    CHECK(id_of(bytes, "eos_token_id") == 255);

    const auto byte_pair = train_byte_pair_tokenizer(source, 259);
    const GgufMetadata bpe = gguf_tokenizer(*byte_pair, 261);
    const auto tokens = list_of(bpe, "tokens", std::string());
    REQUIRE(tokens.size() == 261);
    CHECK(tokens[258] == "<|endoftext|>");
    CHECK(tokens[260] == "[PAD260]");
    CHECK(list_of(bpe, "merges", std::string()) == std::vector<std::string>{"a b", "\u0120 ab"});
    const auto types = list_of(bpe, "token_type", std::int32_t());
    CHECK(types[257] == 1);
    CHECK(types[258] == 3);
    CHECK(types[260] == 5);
    CHECK(id_of(bpe, "eos_token_id") == 258);

    const GgufMetadata pieces = gguf_tokenizer(*train_sentencepiece_tokenizer(source, 265), 270);
    CHECK(text_of(pieces, "model") == "llama");
    CHECK(id_of(pieces, "bos_token_id") == 1);
    CHECK(id_of(pieces, "eos_token_id") == 2);
    CHECK(id_of(pieces, "unknown_token_id") == 0);
    const auto kinds = list_of(pieces, "token_type", std::int32_t());
    CHECK(std::vector<std::int32_t>(kinds.begin(), kinds.begin() + 4) ==
          std::vector<std::int32_t>{2, 3, 3, 6});
    const auto scores = list_of(pieces, "scores", 0.0f);
    CHECK(scores.size() == 270);
    CHECK(scores.at(260) == -1);  // merges count down
  }

  TEST_CASE("a folder that holds something is refused and left as it is") {
    const CapturedLog log, output(stdout);
    const TemporaryFolder temporary;
    trained(temporary, tiny_options(temporary));
    const ExportOptions options = exported(temporary);
    std::filesystem::create_directory(options.output);
    write_bytes(options.output + "/mine", "mine");
    CHECK(message_of<DataError>([&] { export_model(options); }).find("already exists") != std::string::npos);
    CHECK(read_bytes(options.output + "/mine") == "mine");
  }

  TEST_CASE("what cannot be exported leaves nothing, and a folder that was there empty") {
    const CapturedLog log, output(stdout);
    const TemporaryFolder temporary;
    LanguageOptions options = tiny_options(temporary);
    options.model.prefix = true;
    trained(temporary, options);
    const ExportOptions asked = exported(temporary);
    CHECK_THROWS_AS(export_model(asked), CheckpointError);
    CHECK_FALSE(std::filesystem::exists(asked.output));
    std::filesystem::create_directory(asked.output);
    CHECK_THROWS_AS(export_model(asked), CheckpointError);
    CHECK(std::filesystem::is_empty(asked.output));
  }
}
