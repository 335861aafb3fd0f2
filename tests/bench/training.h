#pragma once

#include <tapeformer/autograd/communication/communicator.h>
#include <tapeformer/autograd/communication/data_parallel.h>
#include <tapeformer/autograd/cuda/graph.h>
#include <tapeformer/autograd/cuda_graph_cache.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/shared/compute.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/tests/bench/bench.h>
#include <tapeformer/tests/bench/workloads.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

namespace tapeformer {

inline Tensor random_ids(Index rows, Index length, Index below, Generator& random, Device device) {
  const Tensor ids = Tensor::empty({rows, length}, DType::i32, Device::cpu());
  for (Index i = 0; i < ids.elements(); ++i)
    ids.data<std::int32_t>()[i] = static_cast<std::int32_t>(random.below(below));
  return ids.to(device);
}

/// How a workload runs; its results do not depend on it.
struct TrainingVariant {
  DType type = DType::f32;  ///< of the parameters
  Compute compute;
  bool fused_head = false;
  bool recompute_layers = false;
  std::shared_ptr<Communicator> ranks = communicator_alone();  ///< each has a workload of its own
  DataParallelConfig parallel = {};
};

/// A model with a batch.
class Trainee {
 public:
  virtual ~Trainee() = default;
  virtual Module& module() = 0;
  virtual void draw_batch(Generator& random, Device device) = 0;
  virtual Tensor loss() const = 0;
  /// The inputs of loss() besides the module.
  virtual std::vector<Tensor*> batch() = 0;
};

/// GPT-2 with the exact GELU: learned positions, norms before sublayers, biases, the head tied to the table.
class LanguageTrainee : public Trainee {
 public:
  LanguageTrainee(const Workload& w, const TrainingVariant& variant, Generator& random)
      : workload_(w), model_(config(w), random) {
    head_.fused = variant.fused_head;
    model_.recompute_layers(variant.recompute_layers);
  }
  Module& module() override { return model_; }
  void draw_batch(Generator& random, Device device) override {
    ids_ = random_ids(workload_.batch, workload_.length, workload_.vocabulary, random, device);
    targets_ = random_ids(workload_.batch, workload_.length, workload_.vocabulary, random, device);
  }
  Tensor loss() const override { return model_.loss(ids_, targets_, {}, head_); }
  std::vector<Tensor*> batch() override { return {&ids_, &targets_}; }

 private:
  static DecoderOnlyConfig config(const Workload& w) {
    DecoderOnlyConfig c;
    c.vocabulary = w.vocabulary, c.context = w.length, c.layers = w.layers, c.attention.heads = w.heads,
    c.width = w.width;
    c.feed_forward = w.feed_forward, c.activation = Unary::gelu;
    c.embedding_dropout = c.attention.dropout = c.residual_dropout = w.dropout;
    return c;
  }

  Workload workload_;
  DecoderOnly model_;
  HeadLossConfig head_;
  Tensor ids_, targets_;
};

/// Two tables, a head of its own, sinusoids, smoothed labels; norms before sublayers and at each stack's end,
/// which are as many as those of torch.nn.Transformer. Unlike there, embeddings are dropped out too.
class TranslationTrainee : public Trainee {
 public:
  TranslationTrainee(const Workload& w, const TrainingVariant& variant, Generator& random)
      : workload_(w), model_(config(w), random) {
    head_.fused = variant.fused_head;
    model_.recompute_layers(variant.recompute_layers);
  }
  Module& module() override { return model_; }
  void draw_batch(Generator& random, Device device) override {
    source_ = random_ids(workload_.batch, workload_.source_length, workload_.vocabulary, random, device);
    target_ = random_ids(workload_.batch, workload_.length, workload_.vocabulary, random, device);
    expected_ = random_ids(workload_.batch, workload_.length, workload_.vocabulary, random, device);
  }
  Tensor loss() const override {
    CrossEntropyOptions options;
    options.smoothing = 0.1;
    return model_.loss(source_, {}, target_, expected_, options, head_);
  }
  std::vector<Tensor*> batch() override { return {&source_, &target_, &expected_}; }

 private:
  static EncoderDecoderConfig config(const Workload& w) {
    EncoderDecoderConfig c;
    c.source_vocabulary = c.target_vocabulary = w.vocabulary;
    c.encoder_layers = c.decoder_layers = w.layers;
    c.layer.attention.heads = w.heads, c.layer.width = w.width, c.layer.feed_forward = w.feed_forward;
    c.layer.dropout = w.dropout;
    c.max_length = std::max(c.max_length, std::max(w.length, w.source_length));
    c.tie_target_head = false;
    return c;
  }

  Workload workload_;
  EncoderDecoder model_;
  HeadLossConfig head_;
  Tensor source_, target_, expected_;
};

/// Its phases' seconds, in the order they run in; a graph's forward counts as backward. The optimizer clips.
constexpr std::array<const char*, 4> kPhases{"batch", "forward", "backward", "optimizer"};
using PhaseSeconds = std::array<double, kPhases.size()>;

inline double sum(const PhaseSeconds& seconds) {
  double total = 0;
  for (const double part : seconds) total += part;
  return total;
}

class Training {
 public:
  Training(const Workload& w, const TrainingVariant& variant)
      : random_(1), device_(variant.compute.device), trainee_(make(w, variant, random_)) {
    trainee_->module().to(variant.type);
    variant.compute.apply(trainee_->module());
    const bool alone = variant.ranks->size() == 1;
    parallel_ =
        std::make_unique<DataParallel>(variant.ranks, trainee_->module().parameters(), variant.parallel);
    optimizer_ = std::make_unique<AdamW>(trainee_->module().parameters());
    optimizer_->set_shards(*parallel_);
    replay_ = std::make_unique<CudaGraphCache>(
        trainee_->module().state(), variant.compute.graphs && alone ? CudaGraphCache::kMostGraphs : 0);
  }

  Index parameters() const { return trainee_->module().parameter_count(); }
  Device device() const { return device_; }
  const CudaGraphCache& replay() const { return *replay_; }

  /// A GPU is waited for at the step's end, and if so asked after each phase too; else its phases are only
  /// those of queueing work.
  PhaseSeconds step(bool waits_for_phases = false) {
    PhaseSeconds seconds{};
    double mark = now();
    const auto end = [&](std::size_t phase) {
      if (device_.is_cuda() && (waits_for_phases || phase + 1 == kPhases.size()))
        cuda::synchronize(device_.index);
      const double time = now();
      seconds[phase] = time - mark, mark = time;
    };
    trainee_->draw_batch(random_, device_);
    end(0);
    optimizer_->clear_gradients();
    const std::vector<Tensor*> batch = trainee_->batch();
    std::vector<Tensor> own;
    for (const Tensor* tensor : batch) own.push_back(*tensor);
    replay_->run("step", own, [&](const std::vector<Tensor>& given) {
      for (std::size_t i = 0; i < batch.size(); ++i) *batch[i] = given[i];
      Tape tape;
      const Tensor loss = trainee_->loss();
      if (!cuda::is_capturing()) end(1);
      parallel_->sum_during(tape);
      tape.backward(loss);
      return loss;
    });
    parallel_->finish();
    end(2);
    optimizer_->clipped_step(1e-3, 1, 1.0);
    parallel_->gather_values();
    end(3);
    return seconds;
  }

 private:
  static std::unique_ptr<Trainee> make(const Workload& w, const TrainingVariant& variant, Generator& random) {
    if (w.translates) return std::make_unique<TranslationTrainee>(w, variant, random);
    return std::make_unique<LanguageTrainee>(w, variant, random);
  }

  Generator random_;
  Device device_;
  std::unique_ptr<Trainee> trainee_;
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<CudaGraphCache> replay_;
};

}  // namespace tapeformer
