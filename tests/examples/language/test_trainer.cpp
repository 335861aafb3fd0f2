#include <tapeformer/examples/language/evaluate.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/tests/examples/language/language_case.h>
#include <tapeformer/tests/examples/metrics_lines.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>

#include <cmath>

using namespace tapeformer;

namespace {

double last(const RunFolder& folder, const std::string& field) {
  return metrics(folder, field).back().at(field).get<double>();
}

/// A run that is interrupted and resumed after every step.
void train_in_steps(const RunFolder& folder, const LanguageOptions& options) {
  TrainingControl one_step;
  one_step.max_minutes = 1e-12;
  CHECK(train_language_model(folder, options, one_step) == kExitSuccess);
  while (!folder.checkpoint_state().at("finished").get<bool>())
    CHECK(resume_language_model(folder, one_step) == kExitSuccess);
}

std::string evaluated(const EvaluateOptions& options) {
  const CapturedLog output(stdout);
  CHECK(evaluate(options) == kExitSuccess);
  return output.text();
}

}  // namespace

TEST_CASE_FIXTURE(LanguageCase,
                  "a tiny model learns which token follows which, and its run folder holds it") {
  options.training.samples = 2;
  options.training.accumulate = 2;
  options.training.steps = 60;
  CHECK(train_language_model(folder, options, {}) == kExitSuccess);
  const double exact = last(folder, "best_loss"), estimate = last(folder, "best_estimated_loss");
  CHECK(metrics(folder, "train_loss").front().at("train_loss").get<double>() > 1.2);
  CHECK_BELOW(exact - kWalkEntropy, (kWalkUnigram - kWalkEntropy) / 2);
  CHECK(exact > kWalkEntropy - 0.05);
  CHECK_BELOW(std::fabs(exact - estimate), 0.2);
  CHECK_BELOW(last(folder, "train_loss") - kWalkEntropy, (kWalkUnigram - kWalkEntropy) / 2);
  for (const Json& line : metrics(folder, "validation_loss")) {
    const double loss = line.at("validation_loss").get<double>();
    CHECK(loss >= exact);
    CHECK(line.at("bits_per_byte").get<double>() < loss / std::log(2.0));
  }
  CHECK(log.says("96 tokens per step"));
  CHECK(log.says("layers=1, width=16, context=8"));
  CHECK(log.says(", estimated "));
  CHECK(log.says("the best weights: "));
  // Each sample begins with the first tokens of the validation part, and says where they end.
  const std::string sample = "\n  [" + walk(4, 2) + "]";
  CHECK(log.text().find(sample, log.text().find(sample) + 1) != std::string::npos);
  CHECK(metrics(folder, "epoch").back().at("epoch") == 60 * 2 * 6 / (1500 / 8 - 1));

  LanguageRun run = LanguageRun::load(folder.path());
  CHECK(run.tokenizer->decode({0, 6}) == "aé");
  const LanguageData data = open_language_data(options, folder);
  const LanguageMeasure measure(data.validation, *data.tokenizer, 6, 8, options.training.seed, {});
  CHECK(measure.exact(run.model, progress).mean() == exact);

  EvaluateOptions asked;
  asked.run = folder.path();
  const std::string report = evaluated(asked);
  CHECK(report.find("tokens     230 in the run's validation part\n") == 0);
  CHECK(has(report, format("exact      {:.4f} nats per token, perplexity {:.4g}, ", exact, std::exp(exact))));
  CHECK(has(report, "from 5 random batches of 6 x 8)"));
  asked.corpus = {options.data.validation[0]};
  const std::string same = evaluated(asked);
  CHECK(same.find("tokens     230 in the corpus\n") == 0);
  CHECK(same.substr(same.find("exact")) == report.substr(report.find("exact")));
  asked.corpus.clear();
  CHECK(has(report, format("{:.4f} nats", estimate)));  // the end of training's draw
  asked.context = 9;
  CHECK(message_of<Error>([&] { evaluate(asked); }) == "--context 9 is more than the model's 8");
  asked.context = 0;
  asked.part = "train";
  CHECK(evaluated(asked).find("tokens     1500 in the run's train part\n") == 0);
  asked.part = "validation", asked.corpus = {temporary.file("short")};
  write_bytes(asked.corpus[0], "abc");
  CHECK(has(evaluated(asked), "from 5 random batches of 6 x 2)"));
  write_bytes(asked.corpus[0], "a");
  CHECK(message_of<DataError>([&] { evaluate(asked); }) ==
        asked.corpus[0] + ": holds 1 token, and only a token after another is measured; try a longer text");
}

TEST_CASE(
    "stopped after every step and resumed, a run with dropout is the uninterrupted one to the last bit") {
  const CapturedLog log;
  for (const Objective& objective : objectives()) {
    const TemporaryFolder temporary;
    const RunFolder whole(temporary.file("whole")), broken(temporary.file("broken"));
    LanguageOptions options = tiny_options(temporary);
    options.order = objective.prefix ? "sequential" : "random";
    set_objective(options.model, objective.name);
    set_dropout(options.model, 0.3);
    options.model.feed_forward_dropout = 0.3;
    options.training.accumulate = 2;
    options.training.steps = 9;
    options.training.validate_every = 3;
    CHECK(train_language_model(whole, options, {}) == kExitSuccess);
    train_in_steps(broken, options);
    for (const char* name : {"weights.safetensors", "checkpoint.safetensors", "config.json"}) {
      CHECK((read_file(whole.file(name)) == read_file(broken.file(name))));  // binary: not to be shown
    }
    CHECK(metrics(whole, "step") == metrics(broken, "step"));
    CHECK(metrics(whole, "validation_loss").size() == 3);
  }
}

TEST_CASE_FIXTURE(LanguageCase, "a batch of a prefix model is computed with its prefixes") {
  options.model.prefix = true;
  options.model.layers = 2;  // with one, what follows a prefix sees the same without it
  const LanguageData data = tiny_data(options, temporary);
  LanguageTask task(options, data, strong_model(options), progress);
  const Batch computed = task.batch(0, {});
  const double loss = task.loss(computed).item();
  const DecoderOnly model = strong_model(options);
  const TokenWindows windows(data.train, 8, WindowOrder::random, options.training.seed);
  const Batch batch =
      language_batch(model.config(), windows.batch(0, 6), options.training.seed, 0).to(model.device());
  CHECK(loss == language_loss(model, batch).item());
  CHECK(loss != model.loss(batch.tensors[0], batch.tensors[1]).item());
  CHECK(computed.counted == batch.counted);
  CHECK(computed.counted < 48);
}

TEST_CASE_FIXTURE(LanguageCase, "the shares of experts are measured without dropout, and draw nothing") {
  options.model.experts.experts = 4;
  set_dropout(options.model, 0.5);
  LanguageTask task(options, tiny_data(options, temporary), tiny_model(options), progress);
  const Validation first = task.validate(progress), second = task.validate(progress);
  CHECK(first.further == second.further);
  for (const auto& [name, draws] : task.model().named_counters()) CHECK(*draws == 0);
}

TEST_CASE_FIXTURE(LanguageCase, "the shares of experts are those of a row of the run") {
  options.model.experts.experts = 5, options.model.experts.active = 1;
  const LanguageData data = tiny_data(options, temporary);
  DecoderOnly model = strong_model(options);  // of a longer context
  options.model.context = 1;
  LanguageTask task(options, data, std::move(model), progress);
  const Validation result = task.validate(progress);
  double squares = 0;
  for (const auto& [name, value] : result.further)
    if (name.find("expert_share.") == 0) squares += value * value;
  CHECK(squares == 1);  // the only token chooses one expert
}

TEST_CASE("validations are exact, estimates, or both; so is the closing one, but for its estimate") {
  const CapturedLog log;
  for (const std::string kind : {"exact", "estimate", "both"}) {
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
    LanguageOptions options = tiny_options(temporary);
    options.validation_kind = kind;
    options.training.steps = 6;
    options.training.validate_every = 3;
    CHECK(train_language_model(folder, options, {}) == kExitSuccess);
    const std::vector<Json> lines = metrics(folder, "validation_loss");
    REQUIRE(lines.size() == 2);
    CHECK(lines[1].contains("estimated_loss") == (kind != "exact"));
    CHECK(lines[1].contains("bits_per_byte") == (kind != "estimate"));
    CHECK((lines[1].value("estimated_loss", 0.0) == lines[1].at("validation_loss")) == (kind == "estimate"));
    CHECK(metrics(folder, "best_loss").size() == (kind != "estimate" ? 1 : 0));
    CHECK(last(folder, "best_estimated_loss") > 0);
    if (kind != "estimate") CHECK(last(folder, "best_loss") == lines[1].at("validation_loss"));
  }
}

TEST_CASE("automatic validation takes a small share of the run's work, whatever the clock says") {
  const auto plan = [](Index steps, Index every, Index tokens, const char* kind = "auto",
                       const char* batches = "") {
    LanguageOptions options;
    options.batch = 5, options.model.context = 20, options.training.accumulate = 2;  // 200 tokens per step
    options.training.steps = steps, options.training.validate_every = every;
    options.validation_batches = 30, options.validation_kind = kind;
    options.batch_schedule = batches;
    const ValidationPlan chosen = validation_plan(options, tokens);
    return std::vector<Index>{chosen.exact, chosen.batches, chosen.exact_end, chosen.end_batches};
  };
  using Plan = std::vector<Index>;
  // 1000 steps: 200,000 tokens. 4 validations and the last measurement, of 3600 tokens each, cost a
  // third of 18,000 or 3 %, and not more.
  CHECK(plan(1000, 250, 3600) == Plan{1, 0, 1, 0});
  CHECK(plan(1000, 300, 3600) == Plan{1, 0, 1, 0});  // at 300, 600, 900 and 1000
  // Else 0.5 %, or 1000: 250 each, or 750 tokens measured, 7 batches. 15,000 tokens at the end cost 2.5 %.
  CHECK(plan(1000, 250, 3601) == Plan{0, 7, 1, 0});
  CHECK(plan(1000, 300, 15000) == Plan{0, 7, 1, 0});
  CHECK(plan(1000, 250, 15001) == Plan{0, 7, 0, 30});
  CHECK(plan(1000, 1000, 15001) == Plan{0, 30, 0, 30});
  CHECK(plan(1000, 1, 101) == Plan{0, 1, 1, 0});
  CHECK(plan(1000, 1, 100) == Plan{1, 0, 1, 0});  // a text of one batch costs no more than that
  CHECK(plan(10, 1, 100) == Plan{1, 0, 1, 0});
  CHECK(plan(1000, 1, 15001) == Plan{0, 1, 0, 30});
  CHECK(plan(1000, 1, 1, "estimate") == Plan{0, 30, 0, 30});
  CHECK(plan(1000, 1, 15001, "exact") == Plan{1, 0, 1, 30});
  CHECK(plan(1000, 1, 15001, "both") == Plan{1, 30, 1, 30});
  // 400,000 tokens.
  CHECK(plan(1000, 250, 7200, "auto", "0.5:15") == Plan{1, 0, 1, 0});
  CHECK(plan(1000, 250, 7201, "auto", "0.5:15") == Plan{0, 15, 1, 0});
}

TEST_CASE_FIXTURE(LanguageCase, "a run that is extended validates as before, and its folder says so") {
  options.validation_kind = "auto";
  options.training.steps = 10, options.training.warmup = 2, options.training.validate_every = 1000;
  CHECK(train_language_model(folder, options, {}) == kExitSuccess);
  TrainingControl control;
  control.steps = 200;
  options.training.steps = 200;
  CHECK(validation_plan(options, 230).exact);  // which a run of 200 steps has time for
  control.max_minutes = 1e-12;
  CHECK(resume_language_model(folder, control) == kExitSuccess);
  CHECK(log.says("continues to step 200, with the cosine schedule of 200 steps"));
  CHECK(folder.config().at("training").at("steps") == 200);
  CHECK(resume_language_model(folder, {}) == kExitSuccess);
  const std::vector<Json> lines = metrics(folder, "validation_loss");
  REQUIRE(lines.size() == 2);
  for (const Json& line : lines) CHECK(line.at("estimated_loss") == line.at("validation_loss"));
}

TEST_CASE_FIXTURE(LanguageCase,
                  "batches change their rows and tokens at shares of the steps, also in a resumed run") {
  options.batch_schedule = "0.5:3,0.75:9";
  options.context_schedule = "0:4,0.5:8";
  options.training.steps = 8;
  const LanguageData data = tiny_data(options, temporary);
  LanguageTask task(options, data, tiny_model(options), progress);
  CHECK(task.batch_changes() == std::vector<Index>{4, 6});
  std::vector<Shape> shapes;
  Index tokens = 0;
  for (Index step = 0; step < 8; ++step) {
    CHECK(task.epoch(step) == tokens / ((data.train.size() / 8 - 1) * 8));
    const Batch batch = task.batch(step, {});
    shapes.push_back(batch.tensors[0].shape());
    tokens += batch.tokens;
  }
  CHECK(shapes == std::vector<Shape>{{6, 4}, {6, 4}, {6, 4}, {6, 4}, {3, 8}, {3, 8}, {9, 8}, {9, 8}});
  task.set_steps(40, false);
  CHECK(task.batch_changes() == std::vector<Index>{20, 30});

  const RunFolder whole(temporary.file("whole")), parts(temporary.file("parts"));
  CHECK(train_language_model(whole, options, {}) == kExitSuccess);
  train_in_steps(parts, options);
  const char* const weights = "weights.safetensors";
  CHECK((read_file(whole.file(weights)) == read_file(parts.file(weights))));  // binary: not to be shown
}

TEST_CASE_FIXTURE(LanguageCase, "fine-tuning goes on with another run's weights and tokenizer") {
  const RunFolder base(temporary.file("base")), tuned(temporary.file("tuned"));
  options.training.keep_checkpoints = 2;
  CHECK(train_language_model(base, options, {}) == kExitSuccess);
  options.from = base.path();
  options.model.context = 6;
  options.training.steps = 6;
  options.training.log_every = 1;
  options.training.learning_rate = 1e-4;
  CHECK(train_language_model(tuned, options, {}) == kExitSuccess);
  CHECK(metrics(tuned, "train_loss").front().at("train_loss").get<double>() < 0.7 * kWalkUnigram);
  CHECK(LanguageRun::load(tuned.path()).model.config().context == 8);
  CHECK(resume_language_model(tuned, {}) == kExitSuccess);
}

TEST_CASE_FIXTURE(LanguageCase, "fine-tuning may choose other keys than the run that it starts from") {
  const RunFolder base(temporary.file("base")), tuned(temporary.file("tuned"));
  options.model.attention.kind = "mla", options.model.attention.index_top_k = 8;
  options.training.steps = 6;
  CHECK(train_language_model(base, options, {}) == kExitSuccess);
  options.from = base.path();
  options.model.attention.index_top_k = 4, options.model.attention.index_loss = 0.5;
  CHECK(train_language_model(tuned, options, {}) == kExitSuccess);
  const AttentionConfig attention = model_config_in(tuned.path()).attention;
  CHECK(attention.index_top_k == 4);
  CHECK(attention.index_loss == 0.5);
}

TEST_CASE_FIXTURE(LanguageCase, "data that does not fit the model or the checkpoint is refused") {
  const LanguageData data = tiny_data(options, temporary);
  Generator random(test_seed(1));
  CHECK(message_of<DataError>([&] {
          LanguageTask(options, data, DecoderOnly(options.model_config(6), random), progress);
        }) == data.train.path() + ": has a vocabulary of 7, but the model one of 6");
  LanguageTask task(options, data, tiny_model(options), progress);
  Json state;
  task.save_state(state);
  state["data_fingerprint"] = 1;
  CHECK(message_of<DataError>([&] { task.load_state(state); }) ==
        data.train.path() + ": the data has changed since the checkpoint; restore it, or start again");
  options.model.context = 1500;
  CHECK_THROWS_WITH_AS(LanguageTask(options, data, DecoderOnly(options.model_config(7), random), progress),
                       doctest::Contains("holds 1500 tokens; a window of 1500"), DataError);
  EvaluateOptions nowhere;
  nowhere.run = temporary.file("nowhere");
  CHECK(has(message_of<CheckpointError>([&] { evaluate(nowhere); }), "nowhere"));
}
