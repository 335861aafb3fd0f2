#include <doctest/doctest.h>
#include <tapeformer/autograd/cuda_graph_cache.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/nn/cuda_graph_case.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/support.h>

#include <cmath>
#include <optional>

using namespace tapeformer;

// Training gives the same weights whether steps are queued kernel by kernel or as graphs.

namespace {

constexpr Index kTrainedVocabulary = 11;

DecoderOnly language_model() {
  DecoderOnlyConfig config;
  config.vocabulary = kTrainedVocabulary, config.context = 8, config.layers = 2, config.attention.heads = 2;
  config.width = 32, config.feed_forward = 32;  // heads of 16, as tensor cores need
  config.embedding_dropout = config.attention.dropout = config.residual_dropout = 0.25;
  Generator random(test_seed(5));
  DecoderOnly model(config, random);
  model.to(DType::f32);
  model.to(Device::cuda());
  return model;
}

/// A training, its batches drawn again from a fixed seed.
struct TrainingCourse {
  explicit TrainingCourse(Index most_graphs = 0, bool in_bf16 = false) : model(language_model()) {
    if (in_bf16) model.compute_in(DType::bf16);
    optimizer.emplace(model.parameters());
    replay.emplace(model.state(), most_graphs);
  }

  Tensor pass(const Tensor& inputs, const Tensor& targets, double weight) {
    const Tensor seed = Tensor::scalar(weight, DType::f32, Device::cuda());
    return replay->run("pass", {inputs, {}, targets, seed}, [this](const std::vector<Tensor>& x) {
      Tape tape;
      const Tensor loss = model.loss(x[0], x[2], x[1], {});
      tape.backward(loss, x[3]);
      return loss;
    });
  }
  double pass(Index length, Index rows, double weight = 1) {
    const auto drawn = [&] {
      return random_ids({rows, length}, kTrainedVocabulary, random).to(Device::cuda());
    };
    const Tensor inputs = drawn(), targets = drawn();
    return pass(inputs, targets, weight).item();
  }
  double step(Index length = 5, Index rows = 2) {
    optimizer->clear_gradients();
    const double loss = pass(length, rows);
    optimizer->clipped_step(0.01, 1, 1);
    return loss;
  }
  std::vector<double> steps(Index count, Index length = 5) {
    std::vector<double> losses;
    for (Index i = 0; i < count; ++i) losses.push_back(step(length));
    return losses;
  }

  DecoderOnly model;
  std::optional<AdamW> optimizer;
  std::optional<CudaGraphCache> replay;
  Generator random{test_seed(9)};
};

/// Both have learned and drawn the same.
void check_same_state(TrainingCourse& a, TrainingCourse& b) {
  const auto of_a = a.model.named_parameters(), of_b = b.model.named_parameters();
  REQUIRE(of_a.size() == of_b.size());
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    CAPTURE(of_a[i].first);
    CHECK(same(of_a[i].second.value(), of_b[i].second.value()));
    CHECK(same(of_a[i].second.gradient(), of_b[i].second.gradient()));
  }
  const auto drawn_a = a.model.named_counters(), drawn_b = b.model.named_counters();
  for (std::size_t i = 0; i < drawn_a.size(); ++i) CHECK(*drawn_a[i].second == *drawn_b[i].second);
}

}  // namespace

TEST_CASE("a run with graphs equals one without, bit for bit, over shapes that alternate") {
  for (const bool in_bf16 : {false, true}) {
    CAPTURE(in_bf16);
    TrainingCourse plain(0, in_bf16), graphs(8, in_bf16);
    for (TrainingCourse* course : {&plain, &graphs}) separate_draws(course->model, 3);
    for (Index i = 0; i < 12; ++i) {
      CAPTURE(i);
      const Index length = i % 2 == 0 ? 5 : 3;
      CHECK(plain.step(length) == graphs.step(length));
    }
    check_same_state(plain, graphs);
    CHECK(graphs.replay->refusal() == "");
    CHECK(graphs.replay->counts().captured == 2);
    CHECK(graphs.replay->counts().run == 3);  // the very first step had no memory for gradients yet
    CHECK(graphs.replay->counts().replayed == 7);
    CHECK(graphs.replay->nodes() > 50);
    CHECK(plain.replay->counts().run == 12);
  }
}

TEST_CASE("layers that are recomputed draw the same again in a graph") {
  TrainingCourse plain, graphs(8);
  plain.model.recompute_layers(true);
  graphs.model.recompute_layers(true);
  CHECK(plain.steps(6) == graphs.steps(6));
  check_same_state(plain, graphs);
  CHECK(graphs.replay->counts().replayed == 3);
}

TEST_CASE("gradients of several passes are added up, each with its own weight") {
  TrainingCourse plain, graphs(8);
  for (Index i = 0; i < 6; ++i) {
    for (TrainingCourse* course : {&plain, &graphs}) {
      course->optimizer->clear_gradients();
      for (Index part = 0; part < 3; ++part) course->pass(5, 2, static_cast<double>(i + part));
      course->optimizer->clipped_step(0.01, 0.25, 1);
    }
  }
  check_same_state(plain, graphs);
  CHECK(graphs.replay->counts().captured == 2);  // the first pass of a step assigns, the others add
  CHECK(graphs.replay->counts().replayed == 13);
}

TEST_CASE("counters and weights that are set back, as from a checkpoint, give the same steps again") {
  TrainingCourse graphs(8);
  graphs.steps(5);
  std::vector<Tensor> saved;
  std::vector<std::uint64_t> drawn;
  for (const auto& [name, parameter] : graphs.model.named_parameters())
    saved.push_back(parameter.value().clone());
  for (const auto& [name, counter] : graphs.model.named_counters()) drawn.push_back(*counter);
  const auto restart = [&](TrainingCourse& course) {
    std::size_t i = 0;
    for (const auto& [name, parameter] : course.model.named_parameters())
      parameter.value().copy_from(saved[i++]);
    i = 0;
    for (const auto& [name, counter] : course.model.named_counters()) *counter = drawn[i++] + 1000;
    course.optimizer.emplace(course.model.parameters());
    course.random = Generator(test_seed(31));
  };
  restart(graphs);
  const std::vector<double> first = graphs.steps(4);
  restart(graphs);
  CHECK(graphs.steps(4) == first);
  CHECK(graphs.replay->counts().replayed == 10);
  TrainingCourse plain;
  restart(plain);
  CHECK(plain.steps(4) == first);
  check_same_state(plain, graphs);
}

TEST_CASE("an id out of range inside a graph is an error of that run alone") {
  TrainingCourse graphs(8);
  graphs.steps(4);
  graphs.optimizer->clear_gradients();
  Generator random(test_seed(1));
  const Tensor wrong = random_ids({2, 5}, 200, random).to(Device::cuda());
  const std::string message = message_of<ShapeError>([&] {
    graphs.pass(wrong, wrong, 1);
    cuda::synchronize(0);
  });
  CHECK(message.find("must be in [0, 11)") != std::string::npos);
  CHECK(graphs.replay->counts().replayed == 2);
  CHECK(std::isfinite(graphs.step()));
}
