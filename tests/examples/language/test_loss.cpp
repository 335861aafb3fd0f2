#include <tapeformer/tests/examples/language/language_case.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/text.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

using namespace tapeformer;

namespace {

TokenBatch counting_batch(Index rows, Index length) {
  TokenBatch batch{Tensor::empty({rows, length}, DType::i32), Tensor::empty({rows, length}, DType::i32)};
  for (Index i = 0; i < rows * length; ++i) {
    batch.inputs.data<std::int32_t>()[i] = static_cast<std::int32_t>(i % 7);
    batch.targets.data<std::int32_t>()[i] = static_cast<std::int32_t>((i + 1) % 7);
  }
  return batch;
}

DecoderOnlyConfig with_prefix() {
  DecoderOnlyConfig config;
  config.prefix = true;
  return config;
}

Ids prefixes(const Batch& batch) { return batch.tensors[2].to_vector<std::int32_t>(); }

/// Minus the log of softmax(logits)[target], in double.
double nats_of(const Tensor& logits, Index row, Index target) {
  const Index classes = logits.size(-1);
  double sum = 0;
  for (Index c = 0; c < classes; ++c) sum += std::exp(logits.at(row * classes + c));
  return std::log(sum) - logits.at(row * classes + target);
}

}  // namespace

TEST_CASE("a prefix's own tokens are not targets; the first behind it is") {
  const Batch batch = language_batch(with_prefix(), counting_batch(40, 5), 1, 3);
  Index counted = 0;
  for (Index row = 0; row < 40; ++row) {
    const std::int32_t prefix = prefixes(batch)[static_cast<std::size_t>(row)];
    CHECK(prefix >= 1);
    CHECK(prefix <= 4);
    for (Index t = 0; t < 5; ++t) {
      const Index place = row * 5 + t;
      CHECK(batch.tensors[0].at(place) == place % 7);
      CHECK(batch.tensors[1].at(place) == (t + 1 < prefix ? -1 : (place + 1) % 7));
      counted += t + 1 < prefix ? 0 : 1;
    }
  }
  CHECK(batch.counted == counted);
  const auto drawn = prefixes(batch);
  CHECK(std::set<std::int32_t>(drawn.begin(), drawn.end()) == std::set<std::int32_t>{1, 2, 3, 4});
}

TEST_CASE("prefix lengths are a function of seed and place") {
  const auto drawn = [](std::uint64_t seed, Index number) {
    return prefixes(language_batch(with_prefix(), counting_batch(20, 9), seed, number));
  };
  CHECK(drawn(1, 2) == drawn(1, 2));
  CHECK(drawn(1, 2) != drawn(1, 3));
  CHECK(drawn(1, 2) != drawn(2, 2));
  for (const Index length : {1, 2}) {
    const auto only = prefixes(language_batch(with_prefix(), counting_batch(9, length), 1, 0));
    CHECK(only == Ids(9, 1));
  }
}

TEST_CASE("separate documents begin with each row and after each end token, which predicts nothing") {
  const Batch batch = language_batch({}, counting_batch(2, 8), 1, 0, 3);
  const auto values = [](const Tensor& x) { return x.to_vector<std::int32_t>(); };
  CHECK(batch.tensors[0].shape() == Shape{1, 16});
  CHECK(values(batch.tensors[0]) == Ids{0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 0, 1});
  CHECK(values(batch.tensors[1]) == Ids{1, 2, 3, -1, 5, 6, 0, 1, 2, 3, -1, 5, 6, 0, 1, 2});
  CHECK(values(batch.tensors[4]) == Ids{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4});
  Ids starts(17, 16);
  starts[0] = 0, starts[1] = 4, starts[2] = 8, starts[3] = 11;
  CHECK(values(batch.tensors[3]) == starts);
  CHECK(batch.counted == 14);
}

TEST_CASE("targets that do not count add nothing to the loss, and those within prefixes do not") {
  const TemporaryFolder folder;
  LanguageOptions options = tiny_options(folder);
  for (const bool prefix : {false, true}) {
    options.model.prefix = prefix;
    const DecoderOnly model = tiny_model(options);
    TokenBatch tokens = counting_batch(4, 8);
    for (const Index i : {0, 1, 5}) tokens.targets.data<std::int32_t>()[i] = -1;
    const Batch batch = language_batch(model.config(), tokens, 1, 0).to(model.device());
    const Tensor logits = model(batch.tensors[0], batch.tensors[2]);
    double sum = 0;
    Index counted = 0;
    for (Index i = 0; i < 32; ++i) {
      if (batch.tensors[1].at(i) < 0) continue;
      CHECK(batch.tensors[1].at(i) == (i + 1) % 7);
      sum += nats_of(logits, i, (i + 1) % 7);
      ++counted;
    }
    CHECK(batch.counted == counted);
    CHECK((prefix ? counted < 29 : counted == 29));
    CHECK_BELOW(std::abs(language_loss(model, batch).item() - sum / static_cast<double>(counted)), 1e-5);
  }
}

TEST_CASE_FIXTURE(LanguageCase,
                  "the exact loss is the mean over all tokens but the first, window by window") {
  set_dropout(options.model, 0.5);  // must have no effect
  const LanguageData data = tiny_data(options, temporary);
  DecoderOnly model = tiny_model(options);
  for (const bool fused : {false, true}) {
    const LanguageMeasure measure(data.validation, *data.tokenizer, 6, 8, 1, {fused, 5});
    const TextLoss exact = measure.exact(model, progress);
    double nats = 0;
    Index bytes = 0;
    Ids ids(230);
    data.validation.read(0, 230, ids.data());
    model.eval();
    for (Index first = 0; first < 229; first += 8) {
      const Index length = std::min<Index>(8, 229 - first);
      const Tensor inputs = Tensor::empty({1, length}, DType::i32);
      std::copy_n(ids.begin() + first, length, inputs.data<std::int32_t>());
      const Tensor logits = model(inputs);
      for (Index t = 0; t < length; ++t) {
        const std::int32_t target = ids[static_cast<std::size_t>(first + t + 1)];
        nats += nats_of(logits, t, target);
        bytes += target == 6 ? 2 : 1;  // é comes last
      }
    }
    model.train();
    CHECK(exact.tokens == 229);
    CHECK(exact.text.bytes == bytes);
    CHECK_BELOW(deviation(exact.mean(), nats / 229), 1e-6);
  }
}

TEST_CASE_FIXTURE(LanguageCase,
                  "a prefix model is measured on what follows prefixes drawn for every window") {
  options.model.prefix = true;
  options.model.layers = 2;  // with one, what follows a prefix sees the same without it
  const LanguageData data = tiny_data(options, temporary);
  DecoderOnly model = strong_model(options);
  const LanguageMeasure measure(data.validation, *data.tokenizer, 6, 8, 1, {});
  double nats = 0;
  Index windows_before = 0, tokens = 0;
  for_each_window(data.validation, 8, 6, [&](Index rows, const ReadRows& read) {
    const Batch batch = language_batch(model.config(), read({0, rows}), 0, windows_before).to(model.device());
    windows_before += rows;
    nats += language_loss(model, batch).item() * static_cast<double>(batch.counted);
    tokens += batch.counted;
  });
  const TextLoss exact = measure.exact(model, progress);
  CHECK(exact.tokens == tokens);
  CHECK(tokens < 229);
  CHECK_BELOW(deviation(exact.mean(), nats / static_cast<double>(tokens)), 1e-9);
  const LanguageMeasure otherwise(data.validation, *data.tokenizer, 5, 8, 2, {});  // batch and seed
  CHECK(otherwise.exact(model, progress).tokens == tokens);
  CHECK_BELOW(deviation(otherwise.exact(model, progress).mean(), exact.mean()), 1e-6);
}

TEST_CASE("the fewer batches an estimate has, the wider its error, by Student's t") {
  EstimatedLoss loss;
  loss.standard_error = 0.1;
  const auto text = [&](Index batches) {
    loss.batches = batches;
    return loss.error_text();
  };
  CHECK(text(1).empty());
  CHECK(text(2) == " ± 1.2706");
  CHECK(text(3) == " ± 0.4303");
  CHECK(text(10) == " ± 0.2262");
  for (const auto& [batches, quantile] :
       std::map<Index, double>{{11, 2.2281}, {20, 2.0930}, {60, 2.0010}, {200, 1.9720}, {100000, 1.9600}}) {
    INFO(batches);
    const std::string found = text(batches);
    CHECK_BELOW(std::fabs(std::stod(found.substr(found.find("0."))) - 0.1 * quantile), 2e-4);
  }
}

TEST_CASE_FIXTURE(LanguageCase, "the estimate is the mean of random batches, the same ones each time") {
  write_bytes(options.data.validation[0], walk(3000, 2));
  const LanguageData data = tiny_data(options, temporary);
  DecoderOnly model = tiny_model(options);
  const auto estimate = [&](Index batches, std::uint64_t seed = 1) {
    const LanguageMeasure measure(data.validation, *data.tokenizer, 6, 8, seed, {});
    return measure.estimate(model, batches, progress);
  };
  const EstimatedLoss one = estimate(1), two = estimate(2), many = estimate(60);
  const double second = 2 * two.mean() - one.mean();  // of the second batch
  CHECK(two.tokens == 2 * 6 * 8);
  CHECK(two.mean() == estimate(2).mean());
  CHECK(two.standard_error == doctest::Approx(std::fabs(one.mean() - second) / 2));
  CHECK(one.standard_error == 0);
  CHECK(one.error_text().empty());
  CHECK(one.mean() != two.mean());
  CHECK(estimate(2, 2).mean() != two.mean());
  CHECK(many.standard_error > 0);
  // All of the text is 375 windows, one of eight ways to cut it, and 60 batches are 360: both vary alike.
  const LanguageMeasure measure(data.validation, *data.tokenizer, 6, 8, 1, {});
  CHECK_BELOW(std::fabs(many.mean() - measure.exact(model, progress).mean()),
              kDeviations * std::sqrt(2) * many.standard_error);
}

TEST_CASE_FIXTURE(LanguageCase, "a text shorter than a row is measured in a shorter one") {
  write_bytes(options.data.validation[0], "abc");
  const LanguageData data = tiny_data(options, temporary);
  DecoderOnly model = tiny_model(options);
  const LanguageMeasure measure(data.validation, *data.tokenizer, 6, 8, 1, {});
  const TextLoss exact = measure.exact(model, progress), estimate = measure.estimate(model, 1, progress);
  CHECK(exact.tokens == 2);
  CHECK(estimate.tokens == 12);
  CHECK_BELOW(deviation(estimate.mean(), exact.mean()), 1e-6);
}
