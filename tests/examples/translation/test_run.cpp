#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <tapeformer/examples/translation/run.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/tests/reference/check_below.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

const std::string kGoldenFamilies = TAPEFORMER_SOURCE_DIR "/tests/golden/translation_folders/";

const Json& golden_translations() {
  static const Json all = parse_json(read_file(kGoldenFamilies + "cases.json"));
  return all;
}

TranslationRun golden_run(const std::string& name) {
  SentenceOptions sentences;
  if (name == "m2m100") sentences.languages.target = "en";
  return TranslationRun::load(kGoldenFamilies + name, 0, sentences);
}

const std::vector<std::string> kGoldenNames = {"t5", "bart", "mbart", "mbart50", "m2m100", "nllb"};

}  // namespace

TEST_CASE("a folder of transformers writes what `generate` writes, greedy and with four beams") {
  for (const std::string& name : kGoldenNames) {
    const TranslationRun run = golden_run(name);
    std::vector<TokenIds> sources;
    for (const std::string text : golden_translations().at("sentences"))
      sources.push_back(run.words.encode_source(text));
    SearchOptions search;
    for (const std::size_t column : {3, 4}) {
      search.beam = column == 3 ? 1 : 4;
      const std::vector<Hypothesis> found = search.find(run, sources);
      for (std::size_t i = 0; i < found.size(); ++i) {
        INFO(name, ", sentence ", i, ", column ", column);
        CHECK(found[i].tokens == golden_translations().at(name).at("cases")[i][column].get<TokenIds>());
      }
    }
  }
}

TEST_CASE("ten losses of pairs of sentences are those of transformers, which shifts the labels itself") {
  std::vector<std::string> texts;
  for (const std::string text : golden_translations().at("sentences"))
    if (split_code_points(text).size() < 30) texts.push_back(text);
  for (const std::string& name : kGoldenNames) {
    TranslationRun run = golden_run(name);
    AdamWConfig adamw;
    adamw.beta1 = 0.9, adamw.beta2 = 0.95, adamw.epsilon = 1e-8, adamw.weight_decay = 0.1;
    AdamW optimizer(run.model.parameters(), adamw);
    for (std::size_t step = 0; step < 10; ++step) {
      INFO(name, ", step ", step);
      std::vector<TextPair> pairs;
      for (std::size_t i = step; i < step + 3; ++i) pairs.push_back({texts[i], texts[i + 1]});
      BatchingConfig batching;
      batching.shuffle = false, batching.frame = run.words.frame;
      TranslationBatches batches(encode(run.words, pairs), batching);
      REQUIRE(batches.batches_per_epoch() == 1);
      const TranslationBatch batch = batches.next();
      optimizer.clear_gradients();
      Tape tape;
      CrossEntropyOptions plain;
      plain.ignored = kIgnored;
      const Tensor loss = run.model.loss(batch.source_ids, batch.source_mask, batch.target_inputs,
                                         batch.target_outputs, plain);
      tape.backward(loss);
      optimizer.step(1e-3);
      const double expected = golden_translations().at(name).at("losses")[step].get<double>();
      CHECK_BELOW(std::abs(loss.item() - expected), 2e-5);
    }
  }
}

TEST_CASE("every source gets the prefix, and languages that a model lacks are refused") {
  SentenceOptions sentences;
  sentences.source_prefix = "the ";
  const TranslationRun run = TranslationRun::load(kGoldenFamilies + "t5", 0, sentences);
  CHECK(source_of_line(run.words, "cat") == run.words.source->encode("the cat"));
  CHECK(source_of_line(run.words, " ").empty());
  sentences.languages.source = "fr";
  CHECK_THROWS_AS(TranslationRun::load(kGoldenFamilies + "t5", 0, sentences), DataError);
}
