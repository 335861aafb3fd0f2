#include <doctest/doctest.h>
#include <tapeformer/data/batching.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/tokenizers/tokenizer.h>
#include <tapeformer/tests/reference/text.h>

#include <algorithm>
#include <set>

using namespace tapeformer;

namespace {

/// Pairs of random lengths up to 20; the first source token identifies them.
std::vector<EncodedPair> random_pairs(std::int32_t count) {
  std::vector<EncodedPair> pairs;
  for (std::int32_t i = 0; i < count; ++i) {
    const std::uint64_t bits = mix_bits(test_seed(99), static_cast<std::uint64_t>(i));
    const std::size_t source = 1 + bits % 18, target = 1 + (source + (bits >> 32) % 3);
    pairs.push_back({Ids(source, 7), Ids(target, 8)});
    pairs.back().source[0] = pairs.back().target[0] = 1000 + i;
  }
  return pairs;
}

/// A batch as text: the numbers of its pairs, in order.
Ids members(const TranslationBatch& batch) {
  Ids ids;
  const auto* source = batch.source_ids.data<std::int32_t>();
  for (Index row = 0; row < batch.source_ids.size(0); ++row)
    ids.push_back(source[row * batch.source_ids.size(1)]);
  return ids;
}

std::vector<Ids> epoch(TranslationBatches& batches) {
  std::vector<Ids> all;
  for (Index i = 0; i < batches.batches_per_epoch(); ++i) all.push_back(members(batches.next()));
  return all;
}

}  // namespace

TEST_CASE("a batch of two pairs, written out") {
  BatchingConfig config;
  config.shuffle = false;
  TranslationBatches batches({{{5, 6}, {7}}, {{8}, {9, 10, 11}}}, config);
  const TranslationBatch batch = batches.next();
  CHECK(batch.source_ids.shape() == Shape{2, 3});
  CHECK(batch.source_ids.to_vector<std::int32_t>() == Ids{5, 6, kEnd, 8, kEnd, kPadding});
  CHECK(batch.source_mask.to_vector<bool>() == std::vector<bool>{true, true, true, true, true, false});
  CHECK(batch.target_inputs.shape() == Shape{2, 4});
  CHECK(batch.target_inputs.to_vector<std::int32_t>() ==
        Ids{kBegin, 7, kPadding, kPadding, kBegin, 9, 10, 11});
  CHECK(batch.target_outputs.to_vector<std::int32_t>() == Ids{7, kEnd, kIgnored, kIgnored, 9, 10, 11, kEnd});
  CHECK(batch.tokens == 3 + 2 + 2 + 4);
  CHECK(batches.tokens() == 11);
  CHECK(batches.padding_share() == doctest::Approx(3.0 / 14));
}

TEST_CASE("a batch may take the whole budget, and no token more") {
  BatchingConfig config;
  config.shuffle = false;
  const std::vector<EncodedPair> pairs(4, {{5, 6}, {7, 8}});  // each with an end: 3 by 3
  for (const Index budget : {6, 7, 8}) {
    config.token_budget = budget;
    CHECK(TranslationBatches(pairs, config).batches_per_epoch() == 2);
  }
  config.token_budget = 5;
  CHECK(TranslationBatches(pairs, config).batches_per_epoch() == 4);
}

TEST_CASE("every epoch has every pair once, within the budget") {
  BatchingConfig config;
  config.token_budget = 100;
  TranslationBatches batches(random_pairs(500), config);
  for (int round = 0; round < 3; ++round) {
    std::set<std::int32_t> seen;
    Index tokens = 0, positions = 0;
    for (Index i = 0; i < batches.batches_per_epoch(); ++i) {
      const TranslationBatch batch = batches.next();
      for (const std::int32_t pair : members(batch)) CHECK(seen.insert(pair).second);
      const Index rows = batch.source_ids.size(0), longest_source = batch.source_ids.size(1),
                  longest_target = batch.target_inputs.size(1);
      CHECK(rows * std::max(longest_source, longest_target) <= 100);
      tokens += batch.tokens;
      positions += rows * (longest_source + longest_target);
    }
    CHECK(seen.size() == 500);
    CHECK(tokens == batches.tokens());
    CHECK(batches.padding_share() ==
          doctest::Approx(1 - static_cast<double>(tokens) / static_cast<double>(positions)));
  }
  CHECK_BELOW(batches.padding_share(), 0.1);
}

TEST_CASE("epochs differ in contents and order, seeds differ, and the same seed repeats") {
  BatchingConfig config;
  config.token_budget = 100;
  config.seed = test_seed(1);
  TranslationBatches batches(random_pairs(500), config), again(random_pairs(500), config);
  const auto first = epoch(batches), second = epoch(batches);
  CHECK(first != second);
  const auto sizes = [](const std::vector<Ids>& all) {
    std::vector<std::size_t> counts;
    for (const Ids& ids : all) counts.push_back(ids.size());
    return counts;
  };
  CHECK(sizes(first) != sizes(second));  // the order of the batches, whose sizes are alike in every epoch
  const auto sorted = [](std::vector<Ids> all) {
    for (Ids& ids : all) std::sort(ids.begin(), ids.end());
    std::sort(all.begin(), all.end());
    return all;
  };
  CHECK(sorted(first) != sorted(second));
  CHECK(epoch(again) == first);
  CHECK(epoch(again) == second);
  config.seed = test_seed(2);
  TranslationBatches other(random_pairs(500), config);
  CHECK(epoch(other) != first);
  config.shuffle = false;
  TranslationBatches still(random_pairs(500), config);
  CHECK(epoch(still) == epoch(still));
}

TEST_CASE("seeking to a position continues with the same batches") {
  BatchingConfig config;
  config.token_budget = 100;
  TranslationBatches batches(random_pairs(300), config), resumed(random_pairs(300), config);
  epoch(batches);
  batches.next();
  batches.next();
  const BatchPosition position = batches.position();
  CHECK(position.epoch == 1);
  CHECK(position.index == 2);
  resumed.seek(position);
  CHECK(epoch(resumed) == epoch(batches));
  CHECK(resumed.position().epoch == 2);
  CHECK_THROWS_AS(resumed.seek({0, resumed.batches_per_epoch()}), DataError);
  CHECK_THROWS_AS(resumed.seek({-1, 0}), DataError);
}

TEST_CASE("a share is padded to its own longest pair") {
  BatchingConfig config;
  config.shuffle = false;
  const std::vector<EncodedPair> pairs = {{{5}, {6}}, {{5}, {6, 7}}, {Ids(4, 5), Ids(3, 6)}};
  TranslationBatches first(pairs, config), second(pairs, config);
  const TranslationBatch shorter = first.next(0, 2), longer = second.next(1, 2);
  CHECK(shorter.source_ids.shape() == Shape{2, 2});
  CHECK(shorter.target_outputs.shape() == Shape{2, 3});
  CHECK(shorter.tokens == 2 + 2 + 2 + 3);
  CHECK(longer.source_ids.shape() == Shape{1, 5});
  CHECK(longer.target_outputs.shape() == Shape{1, 4});
}

TEST_CASE(
    "long pairs, and pairs with a side of no tokens, are dropped and counted; with none left, refused") {
  BatchingConfig config;
  config.max_tokens = 4;
  const std::vector<EncodedPair> pairs = {{{}, {5}},       {Ids(3, 6), Ids(3, 7)}, {{5}, {}},       {{}, {}},
                                          {Ids(9, 5), {}}, {Ids(4, 5), {5}},       {{5}, Ids(4, 5)}};
  TranslationBatches batches(pairs, config);
  CHECK(batches.dropped_empty() == 4);
  CHECK(batches.dropped() == 2);
  CHECK(batches.pairs() == 1);
  CHECK(members(batches.next()) == Ids{6});
  config.token_budget = 3;
  CHECK(message_of<DataError>([&] { TranslationBatches(pairs, config); }) ==
        "[batching] no usable pairs; got 7, 3 over the limit of 3 tokens per batch and 4 per sentence and 4 "
        "without tokens");
  config.token_budget = 0;
  CHECK(message_of<DataError>([&] { TranslationBatches(pairs, config); }) ==
        "[batching] budget and limit must be positive; got 0 tokens per batch and 4 per sentence");
}
