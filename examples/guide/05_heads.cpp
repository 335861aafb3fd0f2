// Heads: one word looks at several places at once, and keeps apart what it finds there.
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/guide/show.h>
#include <tapeformer/examples/translation/attention_svg.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/nn/embedding.h>
#include <tapeformer/nn/positions.h>
#include <tapeformer/optim/adamw.h>

using namespace tapeformer;

constexpr Index kBatch = 32, kLength = 8, kLetters = 8, kWidth = 32;  // B, T, V, C

/// Names two letters for each place, the one before it and the first of all, from one attention layer.
struct Model : Module {
  Model(Index heads, Generator& random)
      : letters({kLetters, kWidth, 1}, random),
        positions({PositionKind::learned, kWidth, kLength}, random),
        attention(
            [&] {
              AttentionConfig config;
              config.width = kWidth, config.heads = heads;
              return config;
            }(),
            random),
        head({kWidth, 2 * kLetters}, random) {}

  /// Shapes: ids i32 [B, T] -> logits [B, T, 2, V]
  Tensor operator()(const Tensor& ids_bt, Tensor* weights_bhtt = nullptr) const {
    const Tensor x_btc = positions(letters(ids_bt));
    AttentionContext context;
    context.causal = true;
    context.weights = weights_bhtt;
    return reshape(head(attention(x_btc, x_btc, context)), {-1, kLength, 2, kLetters});
  }
  void visit(ParameterVisitor& visitor) override {
    visitor.child("letters", letters);
    visitor.child("positions", positions);
    visitor.child("attention", attention);
    visitor.child("head", head);
  }

  Embedding letters;
  Positions positions;
  MultiHeadAttention attention;
  Linear head;
};

/// Random letters, and for each place the letter before it (itself at the start) and the first one.
std::pair<Tensor, Tensor> random_batch(Generator& random) {
  std::vector<std::int32_t> ids, targets;
  for (Index i = 0; i < kBatch * kLength; ++i) {
    ids.push_back(static_cast<std::int32_t>(random.below(kLetters)));
    const auto row = static_cast<std::size_t>(i - i % kLength), at = static_cast<std::size_t>(i);
    targets.insert(targets.end(), {ids[i % kLength == 0 ? at : at - 1], ids[row]});
  }
  return {Tensor::from(ids, {kBatch, kLength}), Tensor::from(targets, {kBatch, kLength, 2})};
}

int main(int argc, char** argv) {
  for (const Index heads : {1, 2}) {
    Generator random(1);
    Model model(heads, random);
    AdamW optimizer(model.parameters());
    double loss = 0;
    for (int step = 0; step < 400; ++step) {
      const auto [ids_bt, targets_bt2] = random_batch(random);
      optimizer.clear_gradients();
      Tape tape;
      const Tensor y = cross_entropy(model(ids_bt), targets_bt2);
      tape.backward(y);
      optimizer.step(1e-2);
      loss = y.item();
    }
    std::printf("%d head%s: %d parameters, loss %.1f nats per letter\n", static_cast<int>(heads),
                heads == 1 ? " " : "s", static_cast<int>(model.parameter_count()), loss);
    if (argc > 1 && heads == 2) {
      Tensor weights_bhtt;
      model(Tensor::from<std::int32_t>({2, 0, 5, 1, 7, 3, 6, 4}, {1, kLength}), &weights_bhtt);
      const Labels letters = {"c", "a", "f", "b", "h", "d", "g", "e"};
      write_heat_map(argv[1], reshape(weights_bhtt, {heads, kLength, kLength}), letters, letters,
                     {false, "two heads: the letter before, and the first"});
    }
  }
}
