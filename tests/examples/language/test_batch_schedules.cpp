#include <tapeformer/tests/examples/language/language_case.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <vector>

using namespace tapeformer;

TEST_SUITE("examples/language/batch_schedules") {
  TEST_CASE("batches change their rows and tokens at shares of the steps, and a resumed run repeats it") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    LanguageOptions options = tiny_options(temporary);
    options.batch_schedule = "0.5:3,0.75:9";
    options.context_schedule = "0:4,0.5:8";
    options.training.steps = 8;
    const LanguageData data = tiny_data(options, temporary);
    Progress progress;
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
    TrainingControl one_step;
    one_step.max_minutes = 1e-12;
    CHECK(train_language_model(parts, options, one_step) == kExitSuccess);
    while (!parts.checkpoint_state().at("finished").get<bool>())
      CHECK(resume_language_model(parts, one_step) == kExitSuccess);
    const char* const weights = "weights.safetensors";
    CHECK((read_file(whole.file(weights)) == read_file(parts.file(weights))));  // binary: not to be shown
  }
}
