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

namespace tapeformer {

inline Tensor random_ids(Index rows, Index length, Index below, Generator& random, Device device) {
  const Tensor ids = Tensor::empty({rows, length}, DType::i32, Device::cpu());
  for (Index i = 0; i < ids.elements(); ++i)
    ids.data<std::int32_t>()[i] = static_cast<std::int32_t>(random.below(below));
  return ids.to(device);
}

/// The setting of a workload.
struct TrainingVariant {
  DType type = DType::f32;  ///< of the parameters
  Compute compute;
  bool fused_head = false;
  bool recompute_layers = false;
  std::shared_ptr<Communicator> ranks = communicator_alone();  ///< each has a workload of its own
  DataParallelConfig parallel = {};
  Unary activation = Unary::relu;  ///< of the translation model
  bool redraws = true;             ///< each step has a batch of its own
};

/// A model, a function that draws a batch, and the loss of a batch.
struct Trainee {
  std::shared_ptr<Module> model;
  std::function<std::vector<Tensor>(Generator&)> draw;
  std::function<Tensor(const std::vector<Tensor>&)> loss;
};

/// GPT-2 with the exact GELU: learned positions, norms before sublayers, biases, the head tied to the table.
inline Trainee language_trainee(const Workload& w, const TrainingVariant& variant, Generator& random) {
  DecoderOnlyConfig c;
  c.vocabulary = w.vocabulary, c.context = w.length, c.layers = w.layers, c.attention.heads = w.heads;
  c.width = w.width, c.feed_forward = w.feed_forward, c.activation = Unary::gelu;
  c.embedding_dropout = c.attention.dropout = c.residual_dropout = w.dropout;
  const auto model = std::make_shared<DecoderOnly>(c, random);
  model->recompute_layers(variant.recompute_layers);
  HeadLossConfig head;
  head.fused = variant.fused_head;
  const auto ids = [w, device = variant.compute.device](Generator& draws) {
    return random_ids(w.batch, w.length, w.vocabulary, draws, device);
  };
  return {
      model,
      [ids](Generator& draws) {
        const Tensor inputs = ids(draws);
        return std::vector<Tensor>{inputs, ids(draws)};
      },
      [model, head](const std::vector<Tensor>& batch) { return model->loss(batch[0], batch[1], {}, head); }};
}

/// Two tables, a head of its own, sinusoids, smoothed labels; norms before sublayers and at each stack's end,
/// which are as many as those of torch.nn.Transformer. Unlike there, embeddings are dropped out too.
inline Trainee translation_trainee(const Workload& w, const TrainingVariant& variant, Generator& random) {
  EncoderDecoderConfig c;
  c.source_vocabulary = c.target_vocabulary = w.vocabulary;
  c.encoder_layers = c.decoder_layers = w.layers;
  c.layer.attention.heads = w.heads, c.layer.width = w.width, c.layer.feed_forward = w.feed_forward;
  c.layer.dropout = w.dropout, c.layer.activation = variant.activation;
  c.max_length = std::max({c.max_length, w.length, w.source_length});
  c.tie_target_head = false;
  const auto model = std::make_shared<EncoderDecoder>(c, random);
  model->recompute_layers(variant.recompute_layers);
  HeadLossConfig head;
  head.fused = variant.fused_head;
  return {model,
          [w, device = variant.compute.device](Generator& draws) {
            std::vector<Tensor> batch;
            for (const Index length : {w.source_length, w.length, w.length})
              batch.push_back(random_ids(w.batch, length, w.vocabulary, draws, device));
            return batch;
          },
          [model, head](const std::vector<Tensor>& batch) {
            CrossEntropyOptions options;
            options.smoothing = 0.1;
            return model->loss(batch[0], {}, batch[1], batch[2], options, head);
          }};
}

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
      : random_(1),
        device_(variant.compute.device),
        redraws_(variant.redraws),
        trainee_((w.translates ? translation_trainee : language_trainee)(w, variant, random_)) {
    Module& model = *trainee_.model;
    model.to(variant.type);
    variant.compute.apply(model);
    const bool alone = variant.ranks->size() == 1;
    parallel_ = std::make_unique<DataParallel>(variant.ranks, model.parameters(), variant.parallel);
    optimizer_ = std::make_unique<AdamW>(model.parameters());
    optimizer_->set_shards(*parallel_);
    replay_ = std::make_unique<CudaGraphCache>(
        model.state(), variant.compute.graphs && alone ? CudaGraphCache::kMostGraphs : 0);
  }

  Index parameters() const { return trainee_.model->parameter_count(); }
  Device device() const { return device_; }
  const CudaGraphCache& replay() const { return *replay_; }
  /// The loss of the last step.
  double loss() const { return loss_.item(); }

  /// Waits for a GPU at the step's end and, if asked, after each phase; otherwise its phases only measure
  /// the queueing of work.
  PhaseSeconds step(bool waits_for_phases = false) {
    PhaseSeconds seconds{};
    double mark = now();
    const auto end = [&](std::size_t phase) {
      if (device_.is_cuda() && (waits_for_phases || phase == 0)) cuda::synchronize(device_.index);
      const double time = now();
      seconds[phase] = time - mark, mark = time;
    };
    if (batch_.empty()) batch_ = trainee_.draw(random_);
    optimizer_->clear_gradients();
    loss_ = replay_->run("step", batch_, [&](const std::vector<Tensor>& batch) {
      Tape tape;
      const Tensor loss = trainee_.loss(batch);
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
    if (redraws_) batch_ = trainee_.draw(random_);  // the next one, while a GPU works
    end(0);
    return seconds;
  }

 private:
  Generator random_;
  Device device_;
  bool redraws_;
  Trainee trainee_;
  std::vector<Tensor> batch_;
  Tensor loss_;
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<CudaGraphCache> replay_;
};

}  // namespace tapeformer
