#include <doctest/doctest.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/translation/trainer.h>
#include <tapeformer/tests/examples/captured_log.h>

#include <cmath>

using namespace tapeformer;

TEST_CASE("a decoder that starts from padding starts from zeros, which no gradient changes") {
  TranslationOptions options("translation-marian");
  options.grammar_pairs = 50, options.held_out = 4, options.vocabulary = 200, options.batch_tokens = 100;
  options.model.layer.width = 8, options.model.layer.attention.heads = 2;
  const CapturedLog log;
  Progress progress;
  TranslationTask task(options, progress);
  Tape tape;
  const Batch batch = task.batch(0, {});
  tape.backward(task.loss(batch));
  const auto named = [&](const std::string& wanted) {
    for (const auto& [name, parameter] : task.model().named_parameters())
      if (name == wanted) return parameter;
    return Parameter();
  };
  const Parameter embedding = named("encoder.embedding.weight"), bias = named("head.bias");
  const Index padding = bias.value().elements() - 1;
  CHECK(bias.value().data<float>()[padding] == -100);
  const auto row = [&](const Tensor& table, Index id) {
    double sum = 0;
    for (Index c = 0; c < 8; ++c) sum += std::abs(table.data<float>()[id * 8 + c]);
    return sum;
  };
  CHECK(row(embedding.value(), padding) == 0);
  CHECK(row(embedding.gradient(), padding) > 0);
  const double other = row(embedding.gradient(), 3);
  task.adjust_gradients();
  CHECK(row(embedding.gradient(), padding) == 0);
  CHECK(row(embedding.gradient(), 3) == other);
}
