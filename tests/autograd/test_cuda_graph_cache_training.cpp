#include <doctest/doctest.h>
#include <tapeformer/tests/autograd/graph_course.h>

#include <cmath>

using namespace tapeformer;

// Training gives the same weights whether steps are queued kernel by kernel or as graphs.

namespace {

struct LanguageCourse {
  explicit LanguageCourse(Index most_graphs = 0, DType computes_in = DType::f32)
      : course(
            model, [this](const Batch& x) { return model.loss(x[0], x[2], x[1], {}) * x[3]; }, most_graphs,
            computes_in) {}
  GraphCourse* operator->() { return &course; }

  DecoderOnly model = course_model(
      [](DecoderOnlyConfig& config) { config.embedding_dropout = config.attention.dropout = 0.25; });
  GraphCourse course;
};

/// Inputs, no prefix, targets, and a factor of the loss.
Batch language_batch(Generator& random, Index length = 5, double weight = 1,
                     Index vocabulary = kCourseVocabulary) {
  const auto drawn = [&] { return random_ids({2, length}, vocabulary, random); };
  const Tensor inputs = drawn();
  return {inputs, {}, drawn(), Tensor::scalar(weight, DType::f32)};
}
std::vector<Batch> language_batches(std::size_t count, std::uint64_t seed) {
  Generator random(test_seed(seed));
  std::vector<Batch> batches(count);
  for (Batch& batch : batches) batch = language_batch(random);
  return batches;
}

}  // namespace

TEST_CASE("a run with graphs equals one without, bit for bit, over shapes that alternate") {
  for (const DType type : {DType::f32, DType::bf16}) {
    CAPTURE(name_of(type));
    LanguageCourse plain(0, type), graphs(8, type);
    for (LanguageCourse* course : {&plain, &graphs}) separate_draws(course->model, 3);
    Generator random(test_seed(9));
    for (Index i = 0; i < 12; ++i) {
      CAPTURE(i);
      const Batch batch = language_batch(random, i % 2 == 0 ? 5 : 3);
      CHECK(plain->step(batch) == graphs->step(batch));
    }
    check_same_state(plain.course, graphs.course);
    CHECK(graphs->replay->refusal() == "");
    check_counts(*graphs->replay, 3, 2, 7);  // the very first step had no memory for gradients yet
    CHECK(graphs->replay->nodes() > 50);
    CHECK(plain->replay->counts().run == 12);
  }
}

TEST_CASE("layers that are recomputed draw the same again in a graph") {
  LanguageCourse plain, graphs(8);
  for (LanguageCourse* course : {&plain, &graphs}) course->model.recompute_layers(true);
  const std::vector<Batch> batches = language_batches(6, 9);
  CHECK(plain->steps(batches) == graphs->steps(batches));
  check_same_state(plain.course, graphs.course);
  CHECK(graphs->replay->counts().replayed == 3);
}

TEST_CASE("gradients of several passes are added up, each with its own weight") {
  LanguageCourse plain, graphs(8);
  for (LanguageCourse* course : {&plain, &graphs}) {
    Generator random(test_seed(9));
    for (Index i = 0; i < 6; ++i) {
      course->course.optimizer->clear_gradients();
      for (Index part = 0; part < 3; ++part)
        course->course.pass(language_batch(random, 5, static_cast<double>(i + part)));
      course->course.optimizer->clipped_step(0.01, 0.25, 1);
    }
  }
  check_same_state(plain.course, graphs.course);
  CHECK(graphs->replay->counts().captured == 2);  // the first pass of a step assigns, the others add
  CHECK(graphs->replay->counts().replayed == 13);
}

TEST_CASE("counters and weights that are set back, as from a checkpoint, give the same steps again") {
  LanguageCourse graphs(8);
  graphs->steps(language_batches(5, 9));
  std::vector<Tensor> saved;
  std::vector<std::uint64_t> drawn;
  for (const auto& [name, parameter] : graphs.model.named_parameters())
    saved.push_back(parameter.value().clone());
  for (const auto& [name, counter] : graphs.model.named_counters()) drawn.push_back(*counter);
  const auto restarted = [&](LanguageCourse& course) {
    std::size_t i = 0;
    for (const auto& [name, parameter] : course.model.named_parameters())
      parameter.value().copy_from(saved[i++]);
    i = 0;
    for (const auto& [name, counter] : course.model.named_counters()) *counter = drawn[i++] + 1000;
    course->optimizer.emplace(course.model.parameters());
    return course->steps(language_batches(4, 31));
  };
  const std::vector<double> first = restarted(graphs);
  CHECK(restarted(graphs) == first);
  CHECK(graphs->replay->counts().replayed == 10);
  LanguageCourse plain;
  CHECK(restarted(plain) == first);
  check_same_state(plain.course, graphs.course);
}

TEST_CASE("an id out of range inside a graph is an error of that run alone") {
  LanguageCourse graphs(8);
  graphs->steps(language_batches(4, 9));
  Generator random(test_seed(1));
  const Batch wrong = language_batch(random, 5, 1, 200);
  const std::string message = message_of<ShapeError>([&] { graphs->step(wrong); });
  CHECK(message.find("must be in [0, 11)") != std::string::npos);
  CHECK(graphs->replay->counts().replayed == 2);
  CHECK(std::isfinite(graphs->step(language_batch(random))));
}
