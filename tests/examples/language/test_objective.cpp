#include <tapeformer/examples/language/generate.h>
#include <tapeformer/examples/language/objective.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/tests/examples/language/language_case.h>
#include <tapeformer/tests/reference/text.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>

using namespace tapeformer;

namespace {

constexpr std::int32_t kMask = 50, kBertMask = 28;
constexpr Index kVocabulary = 51;

DecoderOnlyConfig encoder_config() {
  DecoderOnlyConfig config;
  config.vocabulary = kVocabulary;
  set_objective(config, "masked");
  return config;
}

/// Token 7 everywhere, and 8 after it.
TokenBatch equal_tokens(Index rows, Index length) {
  return {Tensor::full({rows, length}, 7, DType::i32), Tensor::full({rows, length}, 8, DType::i32)};
}

/// Inputs and targets of rows from `first` on.
std::pair<Ids, Ids> masked(Index rows, std::uint64_t seed, Index first,
                           std::optional<std::int32_t> document_end = {}) {
  const Batch batch =
      language_batch(encoder_config(), equal_tokens(rows, 16), seed, first, document_end, kMask);
  return {batch.tensors[0].to_vector<std::int32_t>(), batch.tensors[1].to_vector<std::int32_t>()};
}

}  // namespace

TEST_CASE("15 % of the tokens are targets, of which 80 % are masked, 10 % drawn, and 10 % as they were") {
  constexpr Index kRows = 4000;
  const auto [inputs, targets] = masked(kRows, 1, 0);
  double chosen = 0, hidden = 0, same = 0, drawn = 0;
  std::vector<double> of_token(kVocabulary);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CHECK((targets[i] == 7 || (targets[i] == -1 && inputs[i] == 7)));
    if (targets[i] < 0) continue;
    ++chosen;
    if (inputs[i] == kMask)
      ++hidden;
    else if (inputs[i] == 7)
      ++same;
    else
      ++drawn, ++of_token.at(static_cast<std::size_t>(inputs[i]));
  }
  // Within five standard deviations of binomial distributions; a drawn token may be the mask or as it was.
  const auto check_share = [](double count, double of, double share) {
    CHECK_BELOW(std::abs(count - of * share) / std::sqrt(of * share * (1 - share)), 5);
  };
  const double each = 0.1 / static_cast<double>(kVocabulary);
  check_share(chosen, static_cast<double>(inputs.size()), 0.15);
  check_share(hidden, chosen, 0.8 + each);
  check_share(same, chosen, 0.1 + each);
  for (std::int32_t token = 0; token < kVocabulary; ++token)
    if (token != 7 && token != kMask) check_share(of_token[static_cast<std::size_t>(token)], chosen, each);
}

TEST_CASE("masks are a function of seed, row and place, however rows are shared or joined") {
  CHECK(masked(4, 1, 2) == masked(4, 1, 2));
  CHECK(masked(4, 1, 2) != masked(4, 2, 2));
  const auto whole = masked(4, 1, 2), later = masked(2, 1, 4);
  CHECK(Ids(whole.first.begin() + 32, whole.first.end()) == later.first);
  CHECK(Ids(whole.second.begin() + 32, whole.second.end()) == later.second);
  CHECK(masked(4, 1, 2, 9) == whole);  // documents apart, in one row
  CHECK(Ids(later.second.begin(), later.second.begin() + 16) !=
        Ids(later.second.begin() + 16, later.second.end()));
}

TEST_CASE("the mask token is the tokenizer's, or the id after its last one") {
  const auto mask_in = [](const std::string& vocabulary) {
    const TemporaryFolder folder;
    write_bytes(folder.file("tokenizer.json"),
                R"({"added_tokens": [], "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": )" +
                    vocabulary + "}}");
    return mask_token(*find_tokenizer(folder.file("tokenizer.json")));
  };
  CHECK(mask_in(R"({"[UNK]": 0, "[MASK]": 1, "a": 2})") == 1);
  CHECK(mask_in(R"({"[UNK]": 0, "a": 1, "<mask>": 2, "b": 3})") == 2);
  CHECK(mask_in(R"({"[UNK]": 0, "a": 1, "b": 2})") == 3);
}

TEST_CASE_FIXTURE(LanguageCase,
                  "an encoder learns masked tokens, and is measured on the same ones every time") {
  set_objective(options.model, "masked");
  options.batch = 32, options.training.learning_rate = 0.01;
  options.training.steps = 1000, options.training.validate_every = 500;
  CHECK(train_language_model(folder, options, {}) == kExitSuccess);
  LanguageRun run = LanguageRun::load(folder.path());
  CHECK(run.model.config().bidirectional);
  CHECK(run.model.config().vocabulary == 8);  // the characters, and the mask
  const LanguageData data = open_language_data(options, folder);
  const LanguageMeasure measure(data.validation, *data.tokenizer, 6, 8, options.training.seed, {});
  const TextLoss once = measure.exact(run.model, progress);
  CHECK(once.mean() == measure.exact(run.model, progress).mean());
  CHECK(once.text.bytes == 0);  // a loss by bytes of text would mean nothing
  CHECK(once.tokens < 0.4 * 229);
  CHECK_BELOW(once.mean() - kWalkEntropy, kWalkUnigram - 0.4 - kWalkEntropy);
  CHECK(has(once.to_string(), "nats per token, perplexity "));
  GenerateOptions asked;
  asked.run = folder.path(), asked.prompt = "a";
  CHECK(has(message_of<Error>([&] { generate(asked, CommandLine()); }), "an encoder cannot continue a text"));
  CHECK(has(message_of<Error>([&] { run.model.start(); }), "an encoder"));
  CHECK(has(message_of<Error>([&] { LanguageSteps(run.model, std::nullopt); }), "an encoder"));
}

TEST_CASE("an encoder fills the places of mask tokens with the likeliest tokens") {
  const TemporaryFolder folder;
  std::filesystem::copy(TAPEFORMER_SOURCE_DIR "/tests/golden/hugging_face/bert", folder.file("bert"));
  Json json = parse_json(R"({"added_tokens": [{"id": 28, "content": "[MASK]", "special": true}],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "[MASK]": 28}}})");
  for (int id = 1; id < 28; ++id)
    json["model"]["vocab"][std::string(1, static_cast<char>('a' + id - 1))] = id;
  write_bytes(folder.file("bert/tokenizer.json"), json.dump());
  const LanguageRun run = LanguageRun::load(folder.file("bert"));
  const Ids ids = {2, kBertMask, 3, kBertMask};
  const Tensor logits = run.model(Tensor::from<std::int32_t>(ids, {1, 4}));
  Ids expected = ids;
  for (const Index i : {1, 3}) {
    Index best = 0;
    for (Index id = 1; id < 29; ++id)
      if (logits.at(i * 29 + id) > logits.at(i * 29 + best)) best = id;
    expected[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(best);
  }
  GenerateOptions asked;
  asked.run = folder.file("bert"), asked.prompt = "b [MASK] c [MASK]";
  const std::string found = [&] {
    const CapturedLog output(stdout);
    REQUIRE(generate(asked, CommandLine()) == kExitSuccess);
    return output.text();
  }();
  CHECK(found == run.tokenizer->decode(expected) + "\n");
}

TEST_CASE_FIXTURE(LanguageCase, "a model without a row for the mask token is refused") {
  const LanguageData data = tiny_data(options, temporary);
  set_objective(options.model, "masked");
  CHECK(has(message_of<Error>([&] { LanguageTask(options, data, tiny_model(options), progress); }),
            "--objective masked needs a mask token; got 7 tokens in the model"));
}
