#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/attention/relative_bias.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/ops/attention_case.h>

#include <nlohmann/json.hpp>

#include <cmath>

using namespace tapeformer;

namespace {

Tensor biases(const Tensor& table, Index reach, const DistanceBuckets& buckets) {
  return bucketed_bias(table, distance_buckets(buckets), reach);
}

}  // namespace

TEST_CASE("slopes are a geometric sequence, and of other numbers of heads two of them") {
  CHECK(relative_error(alibi_slopes(8),
                       values({0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625}, {8})) ==
        0);
  CHECK(alibi_slopes(1).at(0) == 1.0 / 256);
  // Of 2 heads, 1/16 and 1/256; the first of 4 heads, 1/4.
  CHECK(relative_error(alibi_slopes(3), values({0.0625, 0.00390625, 0.25}, {3})) == 0);
  CHECK(alibi_slopes(12).at(8) == doctest::Approx(std::exp2(-0.5)));
  CHECK(alibi_slopes(12).at(11) == doctest::Approx(std::exp2(-3.5)));
}

TEST_CASE("linear biases decrease on both sides of the query, and slopes get gradients") {
  const Tensor slopes = values({1, 0.5}, {2}), seed = values({1, 2, 3, 4, 5, 1, 0, 0, 0, 0}, {2, 5});
  const OpResult got = run_op([](const auto& in) { return alibi_bias(in[0], 2); }, {slopes}, seed);
  CHECK(relative_error(got.y, values({-2, -1, 0, -1, -2, -1, -0.5, 0, -0.5, -1}, {2, 5})) == 0);
  CHECK(relative_error(got.gradients[0], values({-2 - 2 - 4 - 10, -2}, {2})) == 0);
  CHECK(alibi_bias(slopes, 0).shape() == Shape{2, 1});
  check_both_orders("alibi_bias", [&] { return alibi_bias(slopes * slopes, 3); }, {{"slopes", slopes}});
}

TEST_CASE("every distance has the bucket that T5 gives it") {
  const Golden golden("modifiers");
  for (const auto& [count, furthest] : {std::pair<Index, Index>{32, 128},
                                        {32, 64},
                                        {8, 20},
                                        {16, 300},
                                        {64, 256},
                                        {4, 3},
                                        {6, 50},
                                        {33, 100}}) {
    for (const bool bidirectional : {true, false}) {
      const std::string name =
          std::to_string(count) + "_" + std::to_string(furthest) + "_" + (bidirectional ? "both" : "before");
      CAPTURE(name);
      const Tensor expected = golden.tensor("bucket_ids", name);
      const Index reach = expected.elements() / 2;
      CHECK(reach == 300);
      for (Index r = -reach; r <= reach; ++r)
        REQUIRE(bucket_of(r, {count, bidirectional, furthest}) == expected.at(r + reach));
    }
  }
}

TEST_CASE("a bias reaches less far than the buckets, as far, or further, into the last bucket") {
  Generator random(test_seed(3));
  const Tensor table = random_normal({6, 2}, random);
  for (const bool bidirectional : {true, false}) {
    const DistanceBuckets buckets{6, bidirectional, 5};
    for (const Index reach : {0, 3, 5, 6, 40}) {
      const Tensor bias = biases(table, reach, buckets);
      REQUIRE(bias.shape() == Shape{2, 2 * reach + 1});
      for (Index h = 0; h < 2; ++h) {
        for (Index r = -reach; r <= reach; ++r)
          CHECK(bias.at(h * (2 * reach + 1) + r + reach) == table.at(2 * bucket_of(r, buckets) + h));
      }
    }
    check_both_orders("bucketed_bias_far", [&] { return biases(table * table, 8, buckets); },
                      {{"table", table}});
  }
}

TEST_CASE("attention with every modifier gives what PyTorch and transformers give") {
  const Golden golden("modifiers");
  const auto check = [&](const char* name, const std::string& input, const auto& set) {
    const nlohmann::ordered_json given = golden.options(name);
    for (const AttentionFunction path : kAttentionPaths) {
      CAPTURE(path == composed_attention);
      check_golden(golden, name, {"query", "key", "value", input}, [&](const std::vector<Tensor>& in) {
        AttentionOptions options;
        options.causal = given.value("causal", false);
        set(options, in[3], given);
        return path(in[0], in[1], in[2], options);
      });
    }
  };
  constexpr Index kReach = 10;
  const auto softcap = [](AttentionOptions& o, const Tensor& x, const auto&) {
    o.score_function = ScoreFunction::softcap, o.score_parameter = x;
  };
  check("softcap", "score_parameter", softcap);
  check("softcap_causal", "score_parameter", softcap);
  check("relative", "relative_bias",
        [](AttentionOptions& o, const Tensor& x, const auto&) { o.relative_bias = x; });
  check("alibi", "slopes",
        [](AttentionOptions& o, const Tensor& x, const auto&) { o.relative_bias = alibi_bias(x, kReach); });
  for (const char* name : {"buckets", "buckets_causal"}) {
    check(name, "table", [](AttentionOptions& o, const Tensor& x, const auto& given) {
      o.relative_bias = biases(x, kReach,
                               {given.value("count", Index{0}), given.value("bidirectional", false),
                                given.value("max_distance", Index{0})});
    });
  }
  for (const char* name : {"sinks", "sinks_causal"})
    check(name, "sinks", [](AttentionOptions& o, const Tensor& x, const auto&) { o.sinks = x; });
  check("sigmoid", "mask", [](AttentionOptions& o, const Tensor& x, const auto&) {
    o.mask = x, o.weighting = AttentionWeighting::sigmoid;
  });
}

TEST_CASE("malformed biases are refused by name") {
  CHECK(message_of<ShapeError>([] { alibi_slopes(0); }) ==
        "[alibi_slopes] heads must be positive; got heads=0; try the number of query heads");
  CHECK_THROWS_WITH_AS(alibi_bias(Tensor::zeros({2, 2}), 3),
                       "[alibi_bias] slopes must be [H], and the reach not negative; got slopes=f32[2,2], "
                       "reach=3; try alibi_slopes(heads), and max(T, S) - 1",
                       ShapeError);
  CHECK_THROWS_WITH_AS(bucketed_bias(Tensor::zeros({4, 2}), Tensor::zeros({6}, DType::i32), 3),
                       "[bucketed_bias] the table must be [N, H], ids [2 M + 1], and the reach not negative; "
                       "got table=f32[4,2], ids=i32[6], reach=3; try distance_buckets(), and max(T, S) - 1",
                       ShapeError);
  constexpr const char* kRule =
      "[distance_buckets] every direction must have two buckets, and max_distance lie beyond the near half";
  for (const DistanceBuckets& buckets : {DistanceBuckets{2, true, 128}, {32, true, 8}})
    CHECK(message_of<ShapeError>([&] { distance_buckets(buckets); }).find(kRule) == 0);
}
