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

TEST_CASE("fine-tuning may choose other keys than the run that it starts from") {
  TranslationOptions options;
  options.grammar_pairs = 50, options.held_out = 4, options.batch_tokens = 100;
  options.model.layer.width = 8, options.model.layer.dropout = 0;
  AttentionConfig& attention = options.model.layer.attention;
  attention.heads = 2, attention.kind = "mla", attention.index_top_k = 8;
  const CapturedLog log;
  const TemporaryFolder temporary;
  const RunFolder folder(temporary.file("base"));
  Progress progress;
  TranslationTask base(options, progress);
  folder.create();
  base.describe(folder);
  folder.save_best_weights(base.model());
  options.from = folder.path();
  attention.index_top_k = 4, attention.index_loss = 0.5;
  TranslationTask tuned(options, progress);
  const AttentionConfig& made = static_cast<EncoderDecoder&>(tuned.model()).config().layer.attention;
  CHECK(made.index_top_k == 4);
  CHECK(made.index_loss == 0.5);
}
