#include <tapeformer/examples/translation/trainer.h>
#include <tapeformer/tests/examples/language/language_case.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/thread_communicator.h>

#include <nlohmann/json.hpp>

#include <algorithm>

using namespace tapeformer;

// Several ranks that share batches and validations get the results of a single one, which are in f64.

namespace {

// Sums of some hundred terms in another order.
constexpr double kSharingRounding = 1e-12;

using MakeSharedTask = std::function<std::unique_ptr<TrainingTask>()>;

/// The sums of a batch over all ranks.
struct BatchSums {
  double nats = 0, counted = 0, tokens = 0;
  std::vector<Tensor> gradients;
};

double largest(const Tensor& x) { return absolute_error(x, Tensor::zeros(x.shape(), x.dtype())); }

BatchSums sums_of(TrainingTask& task, Index number) {
  const Batch batch = task.batch(number, {task.ranks().rank(), task.ranks().size()});
  task.model().clear_gradients();
  Tape tape;
  const Tensor loss = task.loss(batch);
  const auto counted = static_cast<double>(batch.counted);
  tape.backward(loss, Tensor::scalar_like(loss, counted));
  const std::vector<double> sums =
      task.ranks().sum({loss.item() * counted, counted, static_cast<double>(batch.tokens)});
  BatchSums result{sums[0], sums[1], sums[2], {}};
  for (const Parameter& parameter : task.model().parameters()) {
    const Tensor gradient = parameter.gradient().clone();
    result.gradients.push_back(gradient);
    if (counted > 0) continue;
    // A rank without rows has computed the same graph.
    CHECK(loss.item() == 0);
    CHECK(batch.tokens == 0);
    CHECK(largest(gradient) == 0);
  }
  for (const Tensor& gradient : result.gradients) task.ranks().all_reduce(gradient).wait();
  return result;
}

void check_same(const BatchSums& got, const BatchSums& expected) {
  CHECK_BELOW(deviation(got.nats, expected.nats), kSharingRounding);
  CHECK(got.counted == expected.counted);
  CHECK(got.tokens == expected.tokens);
  REQUIRE(got.gradients.size() == expected.gradients.size());
  double all = 0;
  for (const Tensor& gradient : expected.gradients) all = std::max(all, largest(gradient));
  for (std::size_t i = 0; i < got.gradients.size(); ++i) {
    const double own = largest(expected.gradients[i]);
    const bool is_noise = own < kSharingRounding * all;  // of keys' biases: zero in theory
    CHECK_BELOW(absolute_error(got.gradients[i], expected.gradients[i]),
                kSharingRounding * (is_noise ? all : own));
  }
}

/// The results of validations: numbers and texts.
struct Validated {
  std::vector<double> numbers;
  std::string remark;
};

Validated validate(TrainingTask& task) {
  Progress progress(false);
  const Validation validation = task.validate(progress);
  Validated result{{validation.loss}, validation.remark};
  for (const auto& [name, number] : validation.further) result.numbers.push_back(number);
  const Json concluded = task.conclude(progress);
  for (const auto& [name, number] : concluded.items()) result.numbers.push_back(number.get<double>());
  return result;
}

/// Compares the first batches, the validation and the end of a training by 2 to 5 ranks, and by `most`, with
/// those of a single process.
void check_ranks(const MakeSharedTask& make, int most) {
  constexpr Index kBatches = 4;
  const CapturedLog log;
  const std::unique_ptr<TrainingTask> alone = make();
  std::vector<BatchSums> expected;
  for (Index i = 0; i < kBatches; ++i) expected.push_back(sums_of(*alone, i));
  const Validated measured = validate(*alone);
  for (const int size : {2, 3, 4, 5, most}) {
    CAPTURE(size);
    reference::as_ranks(size, [&](Communicator& ranks) {
      const SingleThread for_this_rank;
      const std::unique_ptr<TrainingTask> task = make();
      task->set_ranks({&ranks, [](Communicator*) {}});
      for (Index i = 0; i < kBatches; ++i)
        check_same(sums_of(*task, i), expected[static_cast<std::size_t>(i)]);
      const Validated got = validate(*task);
      CHECK(got.remark == measured.remark);
      REQUIRE(got.numbers.size() == measured.numbers.size());
      for (std::size_t i = 0; i < got.numbers.size(); ++i)
        CHECK_BELOW(deviation(got.numbers[i], measured.numbers[i]), kSharingRounding);
      Progress progress(false);
      const double trial = task->trial_loss(kBatches, progress);
      CHECK(ranks.gather(std::to_string(trial)) ==
            std::vector<std::string>(static_cast<std::size_t>(size), std::to_string(trial)));
    });
  }
}

void check_language(const std::function<void(LanguageOptions&)>& change) {
  const CapturedLog log;
  const TemporaryFolder temporary;
  LanguageOptions options = tiny_options(temporary);
  change(options);
  const LanguageData data = tiny_data(options, temporary);
  check_ranks(
      [&] {
        Progress progress(false);
        auto task = std::make_unique<LanguageTask>(options, data, strong_model(options), progress);
        task->model().to(DType::f64);
        return task;
      },
      8);
}

TranslationOptions tiny_translation() {
  TranslationOptions options;
  options.grammar_pairs = 60, options.held_out = 16, options.batch_tokens = 50;
  options.model.layer.width = 16, options.model.layer.feed_forward = 16, options.model.layer.dropout = 0;
  options.model.encoder_layers = options.model.decoder_layers = 1;
  return options;
}

}  // namespace

TEST_CASE("a language model's batches and validations") {
  check_language([](LanguageOptions&) {});
}

TEST_CASE("a language model with a prefix, on adjacent windows, whose logits are never stored as a whole") {
  check_language([](LanguageOptions& options) {
    options.model.prefix = true;
    options.order = "sequential";
    options.fused_head = true, options.head_chunk = 5;
  });
}

TEST_CASE("a translation model's batches and validations, with label smoothing") {
  const TranslationOptions options = tiny_translation();
  check_ranks(
      [&] {
        Progress progress(false);
        auto task = std::make_unique<TranslationTask>(options, progress);
        task->model().to(DType::f64);
        return task;
      },
      9);
}
