#include <tapeformer/autograd/ops/attention/visibility.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/ops/attention_case.h>

#include <algorithm>
#include <cmath>
#include <functional>

using namespace tapeformer;

namespace {

/// B, T, S, H, G, D, E, and the size and number of blocks.
struct BlockCase {
  Index B, T, S, H, G, D, E, block, top_k;
};

/// Scores farther apart are chosen alike in f32, where they are off by less than (D + 8) u sum |q k|.
constexpr double kGap = 1e-4;

struct BlockInputs : AttentionInputs {
  Tensor seed;
};

struct Choice {
  Tensor pairs;            ///< true for the pairs [B, H, T, S] in blocks that a query attends to
  double gap = kInfinity;  ///< the smallest distance of a score that was chosen from one that was not
};

/// The choice, by plain loops.
Choice choice_of(const BlockCase& c, const BlockInputs& in, const AttentionMasks& masks) {
  const Device device = in.query.device();
  const Tensor positions = query_positions(masks, c.B, c.T, c.S, device).to(Device::cpu());
  VisibleKeys visible = visible_keys(masks, c.B, c.T, c.S, device);
  const Tensor pairs = Tensor::zeros({c.B, c.H, c.T, c.S}).to(DType::boolean).to(Device::cpu());
  const std::vector<double> q = in.query.to_vector<double>(), k = in.key.to_vector<double>();
  double gap = kInfinity;
  for (Index b = 0; b < c.B; ++b) {
    for (Index t = 0; t < c.T; ++t) {
      const Index row = b * c.T + t;
      Index from = 0, to = c.S;
      if (visible.defined()) {
        from = visible.from.to(Device::cpu()).data<std::int32_t>()[row];
        to = visible.to.to(Device::cpu()).data<std::int32_t>()[row];
      }
      const Index own = std::clamp<Index>(positions.data<std::int32_t>()[row], 0, c.S - 1) / c.block;
      for (Index h = 0; h < c.H; ++h) {
        std::vector<std::pair<double, Index>> others;
        for (Index j = 0; (j + 1) * c.block <= c.S; ++j) {
          if (j == own || j * c.block < from || (j + 1) * c.block > to) continue;
          double score = 0;
          for (Index s = j * c.block; s < (j + 1) * c.block; ++s)
            for (Index d = 0; d < c.D; ++d)
              score += q[static_cast<std::size_t>((row * c.H + h) * c.D + d)] *
                       k[static_cast<std::size_t>(((b * c.S + s) * c.G + h / (c.H / c.G)) * c.D + d)];
          others.emplace_back(-score / static_cast<double>(c.block), j);
        }
        std::sort(others.begin(), others.end());
        const auto count = std::min(others.size(), static_cast<std::size_t>(c.top_k - 1));
        if (count > 0 && count < others.size())
          gap = std::min(gap, others[count].first - others[count - 1].first);
        others.resize(count);
        others.emplace_back(0, own);
        for (const auto& [score, j] : others)
          for (Index s = j * c.block; s < std::min(c.S, (j + 1) * c.block); ++s)
            pairs.data<bool>()[((b * c.H + h) * c.T + t) * c.S + s] = true;
      }
    }
  }
  return {pairs.to(device), gap};
}

BlockInputs block_inputs(const BlockCase& c, Generator& random) {
  return {random_inputs(c.B, c.T, c.S, c.H, c.G, c.D, c.E, random),
          random_normal({c.B, c.T, c.H, c.E}, random)};
}

/// Inputs whose choice neither rounding nor a step of a difference changes.
BlockInputs inputs_with_gap(const BlockCase& c, const AttentionMasks& masks, Generator& random,
                            double least) {
  for (;;) {
    const BlockInputs in = block_inputs(c, random);
    if (choice_of(c, in, masks).gap > least) return in;
  }
}

AttentionOptions with_blocks(const AttentionMasks& masks, const BlockCase& c) {
  AttentionOptions options(masks);
  options.block_size = c.block, options.block_top_k = c.top_k;
  return options;
}

Op attention_to(const AttentionOptions& options) {
  return attention_by(scaled_dot_product_attention, options);
}

/// Options with the choice as a mask.
AttentionOptions with_mask(const AttentionMasks& masks, const BlockCase& c, const BlockInputs& in) {
  AttentionOptions options(masks);
  options.mask = choice_of(c, in, masks).pairs;
  return options;
}

OpResult masked_result(const BlockCase& c, const AttentionMasks& masks, const BlockInputs& in) {
  return run_op(attention_by(composed_attention, with_mask(masks, c, in)), in.list(), in.seed);
}

void check_masked(const BlockCase& c, const AttentionMasks& masks, Generator& random) {
  INFO("T ", c.T, ", S ", c.S, ", H ", c.H, ", G ", c.G, ", block ", c.block, ", top_k ", c.top_k);
  const BlockInputs in = inputs_with_gap(c, masks, random, kGap);
  check_op(attention_to(with_blocks(masks, c)), in.list(), in.seed, masked_result(c, masks, in));
}

constexpr BlockCase kCases[] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 1},   {1, 3, 3, 1, 1, 2, 3, 8, 2},   {2, 9, 9, 4, 2, 3, 5, 3, 2},
    {1, 33, 33, 2, 1, 8, 4, 8, 3}, {2, 31, 31, 3, 3, 5, 7, 4, 1}, {1, 70, 70, 2, 2, 16, 16, 32, 2},
    {2, 5, 13, 4, 2, 4, 3, 3, 3},                                  // the last queries of a cache
    {1, 40, 40, 4, 1, 8, 8, 1, 5}, {2, 37, 37, 4, 2, 8, 5, 8, 5},  // all blocks
};

}  // namespace

TEST_CASE("five tokens in blocks of two, worked by hand") {
  // Queries of zero give all scores 0: the last one chooses the first block, and outputs are means.
  const auto row = [](const std::vector<double>& x) {
    return values(x, {1, static_cast<Index>(x.size()), 1, 1});
  };
  AttentionOptions options;
  options.causal = true, options.block_size = 2, options.block_top_k = 2, options.scale = 1;
  const Tensor value = row({2, 4, 8, 16, 32});
  CHECK_BELOW(relative_error(
                  scaled_dot_product_attention(row({0, 0, 0, 0, 0}), row({1, 1, -1, 3, 5}), value, options),
                  row({2, 3, 14.0 / 3, 30.0 / 4, 38.0 / 3})),
              kFewRoundings);
  // A query of 1 chooses the second block, whose mean is larger now: weights e^-1, e^4 and e^0.
  const double a = std::exp(-1), b = std::exp(4), sum = a + b + 1;
  const Tensor y = scaled_dot_product_attention(row({0, 0, 0, 0, 1}), row({1, 1, -1, 4, 0}), value, options);
  CHECK_BELOW(std::abs(y.to_vector<double>()[4] - (8 * a + 16 * b + 32) / sum), 1e-13);
}

TEST_CASE("more blocks than there are take no memory") {
  const auto saved_bytes = [](Index top_k) {
    const Parameter x(Tensor::zeros({1, 4, 1, 2}));
    AttentionOptions options;
    options.causal = true, options.block_size = 2, options.block_top_k = top_k;
    Tape tape;
    const Tensor y = scaled_dot_product_attention(x, x, x, options);
    return tape.memory().saved_bytes;
  };
  CHECK(saved_bytes(1) < saved_bytes(2));
  CHECK(saved_bytes(2) == saved_bytes(1000000000));
}

TEST_CASE("outputs and gradients are those of a mask of the choice") {
  Generator random(test_seed(1));
  for (const BlockCase& c : kCases) check_masked(c, causal_masks(), random);
}

TEST_CASE("padding, lengths, windows, prefixes and both directions") {
  Generator random(test_seed(2));
  for (const AttentionMasks& masks : masks_of_23_tokens())
    check_masked({2, 23, 23, 4, 2, 4, 5, 4, 2}, masks, random);
  AttentionMasks masks = causal_masks();
  masks.alignment = CausalAlignment::top_left;
  check_masked({2, 11, 17, 2, 1, 4, 4, 3, 2}, masks, random);
}

TEST_CASE("masked keys may hold NaN, and holes in a mask are not attended to") {
  Generator random(test_seed(3));
  const BlockCase c{1, 12, 12, 2, 1, 4, 4, 3, 2};
  const BlockInputs in = block_inputs(c, random);
  AttentionOptions options = with_blocks(causal_masks(), c);
  options.key_mask = booleans({1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 0, 0}, {1, 12});
  const auto holding = [&](double value) {
    BlockInputs all = in;
    all.key = in.key.clone(), all.value = in.value.clone();
    for (const Index s : {2, 7, 10, 11})
      for (const Tensor& x : {all.key, all.value}) std::fill_n(x.data<double>() + s * c.D, c.D, value);
    return run_op(attention_to(options), all.list(), in.seed);
  };
  const OpResult expected = holding(0), got = holding(kNan);
  check_same_bits(got, expected);
  const OpResult other = holding(100);  // which would win every choice and every softmax
  CHECK(other.y.to_vector<double>() == expected.y.to_vector<double>());
}

TEST_CASE("given scores choose, for all heads of a group") {
  Generator random(test_seed(11));
  const BlockCase c{2, 23, 23, 4, 2, 4, 5, 4, 3};
  const BlockInputs in = block_inputs(c, random);
  AttentionOptions options = with_blocks(causal_masks(), c), masked(causal_masks());
  // Each group prefers its own block, the second or the third; ties go to the first ones.
  std::vector<double> scores;
  std::vector<int> pairs;
  for (Index row = 0; row < c.B * c.T; ++row)
    for (Index g = 0; g < c.G; ++g)
      for (Index j = 0; j < c.T / c.block; ++j) scores.push_back(j == g + 2 ? 1 : 0);
  for (Index b = 0; b < c.B; ++b)
    for (Index h = 0; h < c.H; ++h)
      for (Index t = 0; t < c.T; ++t)
        for (Index s = 0; s < c.T; ++s) {
          const Index own = t / c.block, liked = h / 2 + 2, j = s / c.block;
          const bool has_liked = liked < own, is_first = j == 0 || (j == 1 && !has_liked);
          pairs.push_back(j == own || (j < own && (is_first || (has_liked && j == liked))));
        }
  const Tensor given = values(scores, {c.B, c.T, c.G, c.T / c.block});
  const Op chosen = [=](const std::vector<Tensor>& x) mutable {
    options.block_scores = given.to(wide(x[0].dtype()));
    return scaled_dot_product_attention(x[0], x[1], x[2], options);
  };
  masked.mask = booleans(pairs, {c.B, c.H, c.T, c.T});
  check_op(chosen, in.list(), in.seed, run_op(attention_to(masked), in.list(), in.seed));
}

TEST_CASE("gradients of both orders") {
  Generator random(test_seed(5));
  const BlockCase c{2, 11, 11, 4, 2, 3, 4, 3, 2};
  const BlockInputs in = inputs_with_gap(c, causal_masks(), random, 0.05);  // a step changes scores by less
  const auto run = [&] {
    return scaled_dot_product_attention(in.query, in.key, in.value, with_blocks(causal_masks(), c));
  };
  check_both_orders("block_attention", run, {{"query", in.query}, {"key", in.key}, {"value", in.value}}, 12);
}

TEST_CASE("a packed projection gives the same") {
  Generator random(test_seed(6));
  const BlockCase c{2, 19, 19, 4, 2, 6, 5, 4, 2};
  const BlockInputs in = inputs_with_gap(c, causal_masks(), random, kGap);
  const Op packed = [&](const std::vector<Tensor>& x) {
    return packed_attention(pack(x), heads_of(in), with_blocks(causal_masks(), c));
  };
  check_op(packed, in.list(), in.seed, masked_result(c, causal_masks(), in));
}

TEST_CASE("its weights are zero outside of the choice") {
  Generator random(test_seed(7));
  const BlockCase c{1, 14, 14, 2, 1, 4, 4, 3, 2};
  const BlockInputs in = inputs_with_gap(c, causal_masks(), random, kGap);
  AttentionOptions options = with_blocks(causal_masks(), c), dense = with_mask(causal_masks(), c, in);
  Tensor got, expected;
  options.weights = &got, dense.weights = &expected;
  scaled_dot_product_attention(in.query, in.key, in.value, options);
  scaled_dot_product_attention(in.query, in.key, in.value, dense);
  CHECK(got.to_vector<double>() == expected.to_vector<double>());
}

TEST_CASE("the error in f32 is that of attention to the same keys in f32") {
  Generator random(test_seed(8));
  const BlockCase c{1, 300, 300, 2, 1, 32, 32, 64, 2};
  BlockInputs in = inputs_with_gap(c, causal_masks(), random, kGap);
  for (const double size : {1.0, 5.0}) {  // large scores too
    in.query = in.query * size;
    const OpResult exact = masked_result(c, causal_masks(), in);
    const auto in_f32 = [&](const Op& op) {
      return run_op(op, {in.query.to(DType::f32), in.key.to(DType::f32), in.value.to(DType::f32)}, in.seed);
    };
    const OpResult plain = in_f32(attention_to(with_mask(causal_masks(), c, in)));
    check_as_exact_as(plain, in_f32(attention_to(with_blocks(causal_masks(), c))), exact);
  }
}

TEST_CASE("bits do not depend on the number of threads") {
  if (default_device().is_cuda()) return;
  Generator random(test_seed(9));
  const BlockCase c{2, 150, 150, 3, 3, 8, 8, 40, 2};
  const BlockInputs in = block_inputs(c, random);
  check_on_any_threads(
      [&] { return run_op(attention_to(with_blocks(causal_masks(), c)), in.list(), in.seed); });
}

TEST_CASE("nothing to attend to, and no tokens") {
  const BlockCase c{2, 3, 0, 2, 1, 4, 5, 2, 2};
  Generator random(test_seed(10));
  const BlockInputs none = block_inputs(c, random);
  const Tensor y = scaled_dot_product_attention(none.query, none.key, none.value, with_blocks({}, c));
  CHECK(y.to_vector<double>() == std::vector<double>(60, 0));
  const BlockCase no_queries{2, 0, 3, 2, 1, 4, 5, 2, 2};
  const BlockInputs in = block_inputs(no_queries, random);
  CHECK(scaled_dot_product_attention(in.query, in.key, in.value, with_blocks({}, c)).elements() == 0);
}

TEST_CASE("what attention to blocks excludes is named") {
  const Tensor x = Tensor::zeros({1, 4, 2, 3});
  const auto refuses = [&](const std::string& what, const std::function<void(AttentionOptions&)>& change) {
    AttentionOptions options(causal_masks());
    options.block_size = 2;
    change(options);
    CHECK(message_of<Error>([&] { scaled_dot_product_attention(x, x, x, options); }) ==
          "[block_attention] attention to blocks has a plain softmax, without masks of pairs or packed "
          "sequences; got " +
              what + ", block_size=2; try block_size=0, or no " + what);
  };
  refuses("mask", [](AttentionOptions& o) { o.mask = Tensor::zeros({4, 4}); });
  refuses("score_function", [](AttentionOptions& o) {
    o.score_function = ScoreFunction::softcap, o.score_parameter = Tensor::full({1}, 2);
  });
  refuses("relative_bias", [](AttentionOptions& o) { o.relative_bias = Tensor::zeros({2, 7}); });
  refuses("query_starts", [](AttentionOptions& o) { o.query_starts = integers({0, 4}, {2}); });
  refuses("sinks", [](AttentionOptions& o) { o.sinks = Tensor::zeros({2}); });
  refuses("weighting", [](AttentionOptions& o) { o.weighting = AttentionWeighting::sigmoid; });
  refuses("dropout", [](AttentionOptions& o) { o.dropout = 0.1; });
  AttentionOptions options(causal_masks());
  options.block_size = 2, options.block_scores = Tensor::zeros({1, 4, 2, 3});
  CHECK(message_of<ShapeError>([&] { scaled_dot_product_attention(x, x, x, options); }) ==
        "[block_attention] block_scores must be [B, T, G, S / block_size]; got block_scores=f32[1,4,2,3], "
        "query=f32[1,4,2,3], key=f32[1,4,2,3], block_size=2; try a score of each whole block for each group "
        "of heads");
  options.block_scores = Tensor::zeros({1, 4, 2, 2}, DType::f64);
  CHECK(message_of<DTypeError>([&] { scaled_dot_product_attention(x, x, x, options); }) ==
        "[block_attention] block_scores must have the wide type; got block_scores=f64[1,4,2,2], "
        "query=f32[1,4,2,3]; try f64 with an f64 query, else f32");
  options.block_scores = {};
  options.block_size = 2, options.block_top_k = 0;
  CHECK(message_of<ShapeError>([&] { scaled_dot_product_attention(x, x, x, options); }) ==
        "[block_attention] block_top_k counts the query's own block; got query=f32[1,4,2,3], block_size=2, "
        "block_top_k=0; try a block_top_k of 1 or more");
  options.block_size = -1;
  CHECK(message_of<ShapeError>([&] { scaled_dot_product_attention(x, x, x, options); }) ==
        "[block_attention] block_size must not be negative; got query=f32[1,4,2,3], block_size=-1; try 0 to "
        "attend to all keys");
  CHECK_THROWS_AS(packed_attention(Tensor::zeros({1, 4, 18}), {2, 2, 3, 3}, options), ShapeError);
}
