#include <tapeformer/autograd/config/json.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/examples/language/trainer.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/examples/train/start.h>
#include <tapeformer/examples/translation/trainer.h>
#include <tapeformer/tests/examples/captured_log.h>
#include <tapeformer/tests/reference/check_below.h>

#include <doctest/doctest.h>
#include <omp.h>

#include <algorithm>
#include <sstream>

using namespace tapeformer;

namespace {

constexpr const char* kRuns[] = {"language_mha",    "language_gqa",    "language_mla",
                                 "translation_mha", "translation_mla", "translation_additive"};
constexpr Index kTrained = 6, kResumed = 9;  // as in make.sh

// Losses are means of f32 numbers. About ten sums in a row of at most 64 products each, rounded to 2^-24 of
// their terms, move a logit by at most 4e-5 and usually 1e-6; a step's update is not more exact.
constexpr double kRounding = 1e-5;

/// A copy of a run that an earlier version trained; resuming changes it, and the number of threads.
struct OldRun {
  explicit OldRun(const std::string& name)
      : is_language(name.rfind("language", 0) == 0), run(folder.file(name)) {
    std::filesystem::copy(TAPEFORMER_SOURCE_DIR "/tests/golden/runs/" + name, run.path(),
                          std::filesystem::copy_options::recursive);
  }
  ~OldRun() { omp_set_num_threads(threads); }
  OldRun(const OldRun&) = delete;
  OldRun& operator=(const OldRun&) = delete;

  std::vector<Json> lines(const std::string& file) const {
    std::vector<Json> result;
    std::istringstream text(read_bytes(run.file(file)));
    for (std::string line; std::getline(text, line);) {
      result.push_back(parse_json(line));
      if (result.back().contains("seconds")) result.pop_back();
    }
    return result;
  }

  double evaluated() const {
    const CapturedLog log;
    Progress progress;
    if (is_language) {
      const LanguageOptions options = *training_in(run.path());
      LanguageRun trained = LanguageRun::load(run.path());
      const LanguageMeasure measure(open_language_data(options, run).validation, *trained.tokenizer,
                                    options.batch, trained.model.config().context, options.training.seed,
                                    options.head_loss());
      return measure.exact(trained.model, progress).mean();
    }
    EncoderDecoder model = EncoderDecoder::load(run.path());
    const TranslationOptions options = options_of<TranslationOptions>(run);
    std::string report;
    const std::vector<TextPair> pairs = load_corpus(options, report).validation;
    BatchingConfig batching;
    batching.token_budget = options.batch_tokens;
    batching.max_tokens = model.config().max_length;
    batching.shuffle = false;
    const Vocabularies vocabularies = Vocabularies::load(run.path(), run.config());
    TranslationBatches batches(encode(vocabularies, pairs), batching);
    return validation_loss(model, batches, *vocabularies.target, progress).mean();
  }

  int resume() const {
    const CapturedLog log;
    TrainingControl control;
    control.steps = kResumed;
    control.compute.device = "cpu";
    if (is_language) return resume_language_model(run, control);
    return resume_training(run, control, [&](const Json* checkpoint, Progress& progress) {
      return std::make_unique<TranslationTask>(run, *checkpoint, progress);
    });
  }

  int threads = omp_get_max_threads();
  TemporaryFolder folder;
  bool is_language;
  RunFolder run;
};

}  // namespace

TEST_CASE("runs of an earlier version load, and their weights have their old loss") {
  for (const std::string name : kRuns) {
    CAPTURE(name);
    const OldRun old(name);
    double best = 1e9;
    for (const Json& line : old.lines("metrics.jsonl"))
      best = std::min(best, line.value("validation_loss", best));
    CHECK_BELOW(deviation(old.evaluated(), best), kRounding);
  }
}

TEST_CASE("they are resumed, and continue as that version would have") {
  for (const std::string name : kRuns) {
    CAPTURE(name);
    const OldRun old(name);
    const Json config = old.run.config();
    REQUIRE(old.resume() == 0);
    const std::vector<Json> found = old.lines("metrics.jsonl"), expected = old.lines("expected.jsonl");
    REQUIRE(found.size() == expected.size());
    REQUIRE(found.back().at("step") == kResumed);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (expected[i].at("step") <= kTrained) continue;
      CAPTURE(found[i].dump());
      for (const char* field : {"train_loss", "validation_loss", "learning_rate", "epoch"}) {
        REQUIRE(found[i].contains(field) == expected[i].contains(field));
        if (!found[i].contains(field)) continue;
        CHECK_BELOW(deviation(found[i][field].get<double>(), expected[i][field].get<double>()), kRounding);
      }
    }
    // This version writes everything that the earlier one wrote.
    const Json now = old.run.config();
    for (const auto& [field, value] : config.items())
      if (field != "training") CHECK_MESSAGE(now.at(field) == value, field);
    if (config.contains("prefix"))  // once an option of its own
      CHECK(now.at("training").at("objective") == (config.at("prefix").get<bool>() ? "prefix" : "next"));
    for (const auto& [option, value] : config.at("training").items())
      if (option != "steps" && option != "prefix") {
        CHECK_MESSAGE(now.at("training").at(option) == value, option);
      }
  }
}
