// Cross-attention: words of one sequence look at another.
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/guide/show.h>
#include <tapeformer/examples/translation/attention_svg.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/embedding.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/nn/positions.h>
#include <tapeformer/optim/adamw.h>

using namespace tapeformer;

constexpr Index kBatch = 32, kLength = 8, kLetters = 8, kWidth = 32;  // B, T = S, V, C

/// Writes a sequence backwards. Its queries know only where they write; letters come from the memory.
struct Reverser : Module {
  Reverser(const std::string& kind, Generator& random)
      : letters({kLetters, kWidth, 1}, random),
        read_at({PositionKind::learned, kWidth, kLength}, random),
        write_at({PositionKind::learned, kWidth, kLength}, random),
        head({kWidth, kLetters}, random) {
    AttentionConfig config;
    config.kind = kind, config.width = kWidth, config.cross = true;
    attention = make_attention(config, random);
  }

  /// Shapes: ids i32 [B, S] -> logits [B, T, V]
  Tensor operator()(const Tensor& ids_bs, Tensor* weights_bhts = nullptr) const {
    const Tensor memory_bsc = read_at(letters(ids_bs));
    const Tensor query_btc = write_at(Tensor::zeros({ids_bs.size(0), kLength, kWidth}));
    AttentionContext context;
    context.weights = weights_bhts;
    return head((*attention)(query_btc, memory_bsc, context));
  }
  void visit(ParameterVisitor& visitor) override {
    visitor.child("letters", letters);
    visitor.child("read_at", read_at);
    visitor.child("write_at", write_at);
    visitor.child("attention", *attention);
    visitor.child("head", head);
  }

  Embedding letters;
  Positions read_at, write_at;
  std::unique_ptr<Attention> attention;
  Linear head;
};

int main(int argc, char** argv) {
  for (const char* kind : {"additive", "mha"}) {
    Generator random(1);
    Reverser model(kind, random);
    AdamW optimizer(model.parameters());
    double loss = 0;
    for (int step = 0; step < 300; ++step) {
      std::vector<std::int32_t> ids(kBatch * kLength), backwards(ids.size());
      for (std::size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<std::int32_t>(random.below(kLetters));
        const std::size_t at = i % kLength;
        backwards[i - at + kLength - 1 - at] = ids[i];
      }
      optimizer.clear_gradients();
      Tape tape;
      const Tensor y = cross_entropy(model(Tensor::from(ids, {kBatch, kLength})),
                                     Tensor::from(backwards, {kBatch, kLength}));
      tape.backward(y);
      optimizer.step(1e-2);
      loss = y.item();
    }
    std::printf("%-8s loss %.1f nats per letter\n", kind, loss);
    if (argc > 1 && kind == std::string("mha")) {
      Tensor weights_bhts;
      model(Tensor::from<std::int32_t>({0, 1, 2, 3, 4, 5, 6, 7}, {1, kLength}), &weights_bhts);
      write_heat_map(argv[1], reshape(weights_bhts, {kLength, kLength}),
                     {"h", "g", "f", "e", "d", "c", "b", "a"}, {"a", "b", "c", "d", "e", "f", "g", "h"},
                     {true, "written (down), read (across)"});
    }
  }
}
