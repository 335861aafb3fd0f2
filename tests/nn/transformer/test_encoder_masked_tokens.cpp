#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/tests/nn/module_case.h>

#include <doctest/doctest.h>

#include <algorithm>

using namespace tapeformer;

namespace {

constexpr Index kLetters = 12, kLength = 8, kBatch = 64;
constexpr std::int32_t kMask = 0;  // letters follow

/// A bidirectional language model: an encoder alone, and a head.
struct MaskedModel : Module {
  MaskedModel(const EncoderConfig& config, Generator& random)
      : encoder(config, random), head({config.layer.width, config.vocabulary, true, {}}, random) {}
  Tensor operator()(const Tensor& ids) const { return head(encoder(ids)); }
  void visit(ParameterVisitor& visitor) override {
    visitor.child("encoder", encoder);
    visitor.child("head", head);
  }
  Encoder encoder;
  Linear head;
};

struct Batch {
  Tensor ids, targets;  // targets: -1 but for masked tokens
};

/// Palindromes in which one token of every other pair, or both, are masked.
Batch palindromes(Generator& random, bool mirror_too) {
  const Batch batch{Tensor::empty({kBatch, kLength}, DType::i32),
                    Tensor::full({kBatch, kLength}, -1, DType::i32)};
  for (Index b = 0; b < kBatch; ++b) {
    std::int32_t* ids = batch.ids.data<std::int32_t>() + b * kLength;
    for (Index t = 0; t < kLength / 2; ++t)
      ids[t] = ids[kLength - 1 - t] = static_cast<std::int32_t>(1 + random.below(kLetters));
    for (Index t = 0; t < kLength / 2; ++t) {
      if (random.below(2) == 0) continue;
      const Index mirror = kLength - 1 - t, masked = random.below(2) == 0 ? t : mirror;
      batch.targets.data<std::int32_t>()[b * kLength + masked] = ids[masked];
      ids[masked] = kMask;
      if (mirror_too) ids[t] = ids[mirror] = kMask;
    }
  }
  return batch;
}

/// The share of masked tokens that the model gives the largest logit.
double accuracy(const MaskedModel& model, Generator& random, bool mirror_too) {
  Index right = 0, count = 0;
  for (int pass = 0; pass < 8; ++pass) {
    const Batch batch = palindromes(random, mirror_too);
    const Tensor logits = model(batch.ids);
    const Index vocabulary = logits.size(-1);
    for (Index i = 0; i < kBatch * kLength; ++i) {
      const std::int32_t target = batch.targets.data<std::int32_t>()[i];
      if (target < 0) continue;
      const float* row = logits.data<float>() + i * vocabulary;
      right += std::max_element(row, row + vocabulary) - row == target;
      ++count;
    }
  }
  return static_cast<double>(right) / static_cast<double>(count);
}

}  // namespace

TEST_SUITE("nn/transformer/encoder_masked_tokens") {
  TEST_CASE("an encoder alone learns to fill masked tokens from their context") {
    const SingleThread guard;
    EncoderConfig config;
    config.layer.width = 32;
    config.layer.attention.heads = 4;
    config.layer.feed_forward = 64;
    config.vocabulary = kLetters + 1;
    config.layers = 2;
    config.max_length = kLength;
    Generator random(test_seed(3));
    MaskedModel model(config, random);
    AdamW optimizer(model.parameters());
    CHECK_BELOW(accuracy(model, random, false), 0.3);
    constexpr Index kSteps = 600;
    for (Index step = 0; step < kSteps; ++step) {
      const Batch batch = palindromes(random, false);
      optimizer.clear_gradients();
      Tape tape;
      tape.backward(cross_entropy(model(batch.ids), batch.targets));
      clip_gradient_norm(model.parameters(), 1);
      const double done = static_cast<double>(step) / kSteps;
      optimizer.step(4e-3 * std::min(1.0, 10 * done + 0.02) * (1 - done));
    }
    model.eval();
    CHECK(accuracy(model, random, false) > 0.6);
    CHECK_BELOW(accuracy(model, random, true), 0.3);  // the mirror image was all there is to know
  }
}
