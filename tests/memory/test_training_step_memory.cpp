// After the first step of a shape, a training step makes no mmap, mremap, munmap or brk call, and our own
// code allocates nothing on the heap.
// Usage: test_training_step_memory [malloc | mmap], which breaks the rule on purpose.

#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/tests/memory/allocation_watch.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <deque>

using namespace tapeformer;

namespace {

constexpr int kSkipped = 77;
constexpr int kWarmUp = 3, kWatched = 5;

/// Prints when standard output may no longer allocate.
void print(const char* line) {
  if (write(STDOUT_FILENO, line, std::string::traits_type::length(line)) < 0) _exit(1);
}

/// Runs `step` for a while, then watches it. The program's exit status.
template <class Step>
int check_steps(const Step& step) {
  for (int i = 0; i < kWarmUp; ++i) step();
  long allocations = 0;
  {
    const AllocationWatch watch;
    for (int i = 0; i < kWatched; ++i) step();
    allocations = watch.count();
  }
  std::printf("memory: %ld heap allocations by our own code in %d steps\n", allocations, kWatched);
  std::fflush(stdout);
  if (!forbid_memory_system_calls()) {
    std::printf("memory: system calls were not watched, because seccomp is not permitted here\n");
    return allocations > 0 ? 1 : kSkipped;
  }
  for (int i = 0; i < kWatched; ++i) step();
  print("memory: no call of mmap, mremap, munmap or brk\n");
  return allocations > 0 ? 1 : 0;
}

struct Batch {
  Tensor source, source_mask, target_inputs, target_outputs;
};

/// Source sequences end in padding; their lengths differ.
Batch random_batch(Index batch, Index source, Index target, Index vocabulary, Generator& random) {
  const auto ids = [&](const Shape& shape) {
    const Tensor x = Tensor::empty(shape, DType::i32);
    for (Index i = 0; i < x.elements(); ++i) {
      x.data<std::int32_t>()[i] = static_cast<std::int32_t>(random.below(vocabulary));
    }
    return x;
  };
  const Tensor mask = Tensor::full({batch, source}, 1, DType::boolean);
  for (Index b = 0; b < batch; ++b) {
    for (Index s = source - b % 3; s < source; ++s) mask.data<bool>()[b * source + s] = false;
  }
  return {ids({batch, source}), mask, ids({batch, target}), ids({batch, target})};
}

/// Language models that have, between them, every kind of attention and every modifier of its scores.
std::deque<DecoderOnly> language_models(Generator& random) {
  std::deque<DecoderOnly> models;
  const auto add = [&](const char* kind, const auto& choose) {
    DecoderOnlyConfig config;
    config.vocabulary = 211, config.context = 40, config.layers = 3, config.width = 64;
    config.attention.kind = kind, config.attention.heads = 4;
    choose(config);
    models.emplace_back(config, random);
  };
  for (const AttentionKind& kind : attention_kinds()) {
    if (kind.can & kCanModelLanguage) add(kind.name.c_str(), [](DecoderOnlyConfig&) {});
  }
  for (const PieceCase& piece : AttentionPieces::cases()) {
    const auto choose = [&](DecoderOnlyConfig& c) { piece.choose(c.attention), c.attention.value_width = 0; };
    try {
      add(piece.kind, choose);
    } catch (const Error& error) {
      if (std::string(error.what()).find("the model decides") == std::string::npos) throw;  // see below
    }
  }
  add("gqa", [](DecoderOnlyConfig& c) {
    c.positions = PositionKind::alibi, c.attention.softcap = 20, c.attention.sinks = true;
    c.attention.qk_norm = QkNorm::l2, c.attention.output_gate = OutputGate::element;
    c.window = 8, c.windows = "SSL", c.value_residual = true;
    c.sublayer_norms = SublayerNorms::both;
  });
  add("mha", [](DecoderOnlyConfig& c) {
    c.positions = PositionKind::buckets, c.attention.weighting = AttentionWeighting::sigmoid;
    c.attention.softcap = 20;
    c.attention.qk_norm = QkNorm::joint, c.attention.output_gate = OutputGate::head;
    c.kv_sharing = 3, c.sublayer_norms = SublayerNorms::output;
  });
  add("gqa", [](DecoderOnlyConfig& c) {
    c.positions = PositionKind::rotary, c.window = 8, c.windows = "SL", c.window_rotary_base = 100;
  });
  return models;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string broken = count > 1 ? arguments[1] : "";
  Generator random(1);
  EncoderDecoderConfig config;
  config.source_vocabulary = 211, config.target_vocabulary = 2011;
  config.layer.width = 256, config.layer.attention.heads = 4, config.layer.feed_forward = 512;
  config.layer.dropout = 0.1;
  config.encoder_layers = config.decoder_layers = 2;
  EncoderDecoder model(config, random);
  AdamW optimizer(model.parameters());
  const Batch batches[] = {random_batch(16, 13, 11, 200, random), random_batch(5, 29, 34, 200, random)};
  CrossEntropyOptions smoothed;
  smoothed.smoothing = 0.1;

  std::deque<DecoderOnly> language = language_models(random);
  std::deque<AdamW> optimizers;
  for (DecoderOnly& each : language) optimizers.emplace_back(each.parameters());
  const Tensor ids = Tensor::zeros({3, 40}, DType::i32);

  const int status = check_steps([&] {
    for (std::size_t i = 0; i < language.size(); ++i) {
      optimizers[i].clear_gradients();
      Tape tape;
      tape.backward(language[i].loss(ids, ids));
      optimizers[i].step(1e-3);
    }
    for (const Batch& batch : batches) {
      optimizer.clear_gradients();
      model.recompute_layers(&batch == &batches[1]);
      Tape tape;
      const Tensor loss =
          model.loss(batch.source, batch.source_mask, batch.target_inputs, batch.target_outputs, smoothed);
      tape.backward(loss);
      clip_gradient_norm(optimizer.parameters(), 1.0);
      optimizer.step(1e-3);
    }
    if (broken == "malloc") delete new volatile int(1);
    if (broken == "mmap") munmap(nullptr, 1);
  });
  _exit(status);  // without the destructors, which may unmap
}
