#include <tapeformer/examples/language/export.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/tests/examples/language/language_case.h>
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
      CHECK(most < 1e-5);
    }
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
