#pragma once

#include <tapeformer/autograd/cuda_graph_cache.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/nn/cuda_graph_case.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace tapeformer {

constexpr Index kCourseVocabulary = 11;

using Batch = std::vector<Tensor>;

inline DecoderOnly course_model(const std::function<void(DecoderOnlyConfig&)>& choose) {
  DecoderOnlyConfig config;
  config.vocabulary = kCourseVocabulary, config.context = 12, config.layers = 2, config.attention.heads = 2;
  config.width = 32, config.feed_forward = 32;  // heads of 16, as tensor cores need
  config.residual_dropout = 0.25;
  choose(config);
  Generator random(test_seed(5));
  return DecoderOnly(config, random);
}

/// A run whose batches are moved to its device, with at most `most_graphs` graphs.
struct GraphCourse {
  using Loss = std::function<Tensor(const Batch&)>;

  GraphCourse(Module& trained, Loss of_batch, Index most_graphs, DType computes_in = DType::bf16,
              Device where = Device::cuda())
      : model(trained), loss(std::move(of_batch)), device(where) {
    model.to(DType::f32);
    model.to(device);
    if (computes_in == DType::bf16) model.compute_in(DType::bf16);  // as tensor cores take them
    optimizer.emplace(model.parameters());
    replay.emplace(model.state(), most_graphs);
  }

  /// Adds the gradients of a batch.
  Tensor pass(Batch batch) {
    for (Tensor& x : batch)
      if (x.defined()) x = x.to(device);
    return replay->run("pass", batch, [&](const Batch& x) {
      Tape tape;
      const Tensor y = loss(x);
      tape.backward(y);
      return y;
    });
  }
  double step(const Batch& batch) {
    optimizer->clear_gradients();
    const Tensor total = pass(batch);
    optimizer->clipped_step(0.01, 1, 1);
    return total.item();  // waits, and would report an error
  }
  std::vector<double> steps(const std::vector<Batch>& batches) {
    std::vector<double> losses;
    for (const Batch& batch : batches) losses.push_back(step(batch));
    return losses;
  }

  Module& model;
  Loss loss;
  Device device;
  std::optional<AdamW> optimizer;
  std::optional<CudaGraphCache> replay;
};

/// Both have learned and drawn the same.
inline void check_same_state(GraphCourse& a, GraphCourse& b) {
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

inline void check_counts(const CudaGraphCache& replay, Index run, Index captured, Index replayed,
                         Index given_up = 0) {
  CHECK(replay.counts().run == run);
  CHECK(replay.counts().captured == captured);
  CHECK(replay.counts().replayed == replayed);
  CHECK(replay.counts().given_up == given_up);
}

}  // namespace tapeformer
