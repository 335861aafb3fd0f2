#include <tapeformer/autograd/ops/attention/sparse_attention.h>
#include <tapeformer/autograd/ops/attention/visibility.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/ops/attention_case.h>

#include <algorithm>
#include <cmath>

using namespace tapeformer;

namespace {

/// B, T, S; heads and width of the indexer; heads, width and width of values of attention; keys of a query.
struct SparseCase {
  Index B, T, S, index_heads, index_width, H, N, E, top_k;
};

struct SparseInputs {
  IndexHeads index;
  Tensor query, latents, seed;
};

SparseInputs sparse_inputs(const SparseCase& c, Generator& random) {
  return {
      {random_normal({c.B, c.T, c.index_heads, c.index_width}, random),
       random_normal({c.B, c.S, c.index_width}, random), random_normal({c.B, c.T, c.index_heads}, random)},
      random_normal({c.B, c.T, c.H, c.N}, random),
      random_normal({c.B, c.S, c.N}, random),
      random_normal({c.B, c.T, c.H, c.E}, random)};
}

/// The scores of all pairs, [B, T, S], in plain operations.
Tensor dense_scores(const IndexHeads& index) {
  const Index B = index.query.size(0), T = index.query.size(1), H = index.query.size(2),
              D = index.query.size(3), S = index.key.size(1);
  const Tensor query_bnd = reshape(index.query, {B, T * H, D});
  const double scale = 1 / std::sqrt(static_cast<double>(D));
  const Tensor products_bths = reshape(matmul(query_bnd, transposed(index.key), scale), {B, T, H, S});
  return sum(relu(products_bths) * reshape(index.weights, {B, T, H, 1}), {2}) *
         (1 / std::sqrt(static_cast<double>(H)));
}

/// The distance of all products from zero, where a gradient jumps.
double least_product(const IndexHeads& index) {
  const Index B = index.query.size(0), rows = index.query.size(1) * index.query.size(2),
              D = index.query.size(3);
  double least = kInfinity;
  for (const double z : matmul(reshape(index.query, {B, rows, D}), transposed(index.key)).to_vector<double>())
    least = std::min(least, std::abs(z));
  return least;
}

/// The choice by plain loops; `gap` becomes the smallest distance of a score that was chosen from another.
std::vector<std::int32_t> plain_choice(const SparseCase& c, const IndexHeads& index,
                                       const AttentionMasks& masks, double& gap) {
  const std::vector<double> scores = dense_scores(index).to(Device::cpu()).to_vector<double>();
  const VisibleKeys visible = visible_keys(masks, c.B, c.T, c.S, index.key.device());
  std::vector<std::int32_t> from, to, all;
  if (visible.defined()) from = integers_of(visible.from), to = integers_of(visible.to);
  const Tensor real = masks.key_mask.defined() ? masks.key_mask.to(Device::cpu()) : Tensor();
  gap = kInfinity;
  for (Index row = 0; row < c.B * c.T; ++row) {
    const Index b = row / c.T;
    const auto at = static_cast<std::size_t>(row);
    std::vector<std::pair<double, std::int32_t>> seen;
    for (Index s = 0; s < c.S; ++s) {
      if (visible.defined() && (s < from[at] || s >= to[at])) continue;
      if (real.defined() && !real.data<bool>()[b * c.S + s]) continue;
      seen.emplace_back(-scores[static_cast<std::size_t>(row * c.S + s)],
                        static_cast<std::int32_t>(b * c.S + s));
    }
    std::sort(seen.begin(), seen.end());
    const auto count = std::min(seen.size(), static_cast<std::size_t>(c.top_k));
    if (count < seen.size() && seen[count].first != seen[count - 1].first)  // scores of 0 are equal often
      gap = std::min(gap, seen[count].first - seen[count - 1].first);
    std::vector<std::int32_t> own;
    for (std::size_t i = 0; i < count; ++i) own.push_back(seen[i].second);
    std::sort(own.begin(), own.end());
    own.resize(static_cast<std::size_t>(std::min(c.top_k, c.S)), static_cast<std::int32_t>(c.B * c.S));
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

SparseInputs sparse_inputs_with_gap(const SparseCase& c, const AttentionMasks& masks, Generator& random,
                                    double least) {
  for (;;) {
    const SparseInputs in = sparse_inputs(c, random);
    double gap = 0;
    plain_choice(c, in.index, masks, gap);
    if (gap > least) return in;
  }
}

/// True for the pairs [B, 1, T, S] of a choice.
Tensor pairs_of(const SparseCase& c, const Tensor& chosen) {
  const Tensor pairs = Tensor::zeros({c.B, 1, c.T, c.S}).to(DType::boolean).to(Device::cpu());
  const std::vector<std::int32_t> keys = integers_of(chosen);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Index row = static_cast<Index>(i) / chosen.size(2), b = row / c.T;
    if (keys[i] < c.B * c.S) pairs.data<bool>()[row * c.S + keys[i] - b * c.S] = true;
  }
  return pairs.to(chosen.device());
}

Op attention_to(const SparseCase& c, const Tensor& chosen) {
  return [=](const std::vector<Tensor>& in) {
    SparseOptions options;
    options.value_width = c.E, options.scale = 0.3;
    return sparse_attention(in[0], in[1], chosen, options);
  };
}
/// Attention with the choice as a mask.
Op masked_attention(const SparseCase& c, const Tensor& chosen, Tensor* weights = nullptr) {
  return [=](const std::vector<Tensor>& in) {
    AttentionOptions options;
    options.mask = pairs_of(c, chosen), options.scale = 0.3, options.weights = weights;
    const Tensor key = reshape(in[1], {c.B, c.S, 1, c.N});
    return composed_attention(in[0], key, slice(key, 3, 0, c.E), options);
  };
}

Op scores_of(const Tensor& chosen) {
  return [=](const std::vector<Tensor>& in) { return index_scores({in[0], in[1], in[2]}, chosen); };
}

/// The scores without those of places that are left.
Tensor where_chosen(const Tensor& scores) {
  const Tensor none = Tensor::scalar_like(scores, -1e30), zero = Tensor::scalar_like(scores, 0);
  return where(equal(scores.detach(), none), zero, scores);
}

void check_case(const SparseCase& c, const AttentionMasks& masks, Generator& random) {
  INFO("T ", c.T, ", S ", c.S, ", H ", c.H, ", top_k ", c.top_k);
  const SparseInputs in = sparse_inputs_with_gap(c, masks, random, 1e-5);
  double gap = 0;
  const Tensor chosen = choose_keys(in.index, c.top_k, masks);
  REQUIRE(integers_of(chosen) == plain_choice(c, in.index, masks, gap));
  check_op(attention_to(c, chosen), {in.query, in.latents}, in.seed,
           run_op(masked_attention(c, chosen), {in.query, in.latents}, in.seed));

  // Scores of chosen keys are those of all pairs, and their gradients those of a seed that is zero elsewhere.
  const std::vector<Tensor> index{in.index.query, in.index.key, in.index.weights};
  const Tensor pairs = pairs_of(c, chosen), dense_seed = random_normal({c.B, c.T, c.S}, random),
               zero = Tensor::scalar_like(dense_seed, 0);
  const Op dense = [&](const std::vector<Tensor>& x) {
    return where(reshape(pairs, {c.B, c.T, c.S}), dense_scores({x[0], x[1], x[2]}), zero);
  };
  OpResult expected = run_op(dense, index, dense_seed);
  const std::vector<std::int32_t> keys = integers_of(chosen);
  const std::vector<double> all = expected.y.to_vector<double>(), seeds = dense_seed.to_vector<double>();
  std::vector<double> own, own_seeds;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Index row = static_cast<Index>(i) / chosen.size(2), b = row / c.T;
    const auto at = static_cast<std::size_t>(row * c.S + keys[i] - b * c.S);
    own.push_back(keys[i] < c.B * c.S ? all[at] : -1e30);
    own_seeds.push_back(keys[i] < c.B * c.S ? seeds[at] : 0);
  }
  const OpResult got = run_op(scores_of(chosen), index, values(own_seeds, chosen.shape()));
  CHECK_BELOW(absolute_error(got.y, values(own, got.y.shape())), 1e-12);
  expected.y = got.y;
  check_op(scores_of(chosen), index, values(own_seeds, chosen.shape()), expected);
}

constexpr SparseCase kSparseCases[] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 1},   {1, 3, 3, 2, 2, 1, 3, 2, 8},    {2, 9, 9, 2, 3, 4, 5, 3, 2},
    {1, 33, 33, 4, 8, 2, 8, 8, 5}, {2, 31, 31, 3, 5, 17, 9, 7, 4}, {1, 150, 150, 2, 4, 3, 33, 32, 70},
    {2, 5, 13, 2, 4, 4, 6, 4, 3},  // the last queries of a cache
};

}  // namespace

TEST_CASE("the two best of four keys, worked by hand") {
  // Products 1, -2, 3, 2; the head's weight is 2, the scale 1 / sqrt(1): scores 2, 0, 6, 4.
  const IndexHeads index{values({1}, {1, 1, 1, 1}), values({1, -2, 3, 2}, {1, 4, 1}), values({2}, {1, 1, 1})};
  const Tensor chosen = choose_keys(index, 2);
  CHECK(integers_of(chosen) == std::vector<std::int32_t>{2, 3});
  CHECK(index_scores(index, chosen).to_vector<double>() == std::vector<double>{6, 4});
  SparseOptions options;
  options.value_width = 1;
  Tensor shares;
  options.shares = &shares;
  const Tensor y =
      sparse_attention(values({1}, {1, 1, 1, 1}), values({5, 9, 1, 0}, {1, 4, 1}), chosen, options);
  const double e = std::exp(1.0);
  CHECK_BELOW(std::abs(y.to_vector<double>()[0] - e / (e + 1)), kFewRoundings);
  CHECK_BELOW(std::abs(shares.to_vector<double>()[0] - e / (e + 1)), kFewRoundings);
}

TEST_CASE("of equal scores the first are chosen, in order, zeros of both signs and NaN among them") {
  const auto chosen = [](const std::vector<double>& keys, double weight, Index top_k) {
    const Index S = static_cast<Index>(keys.size());
    return integers_of(choose_keys(
        {values({1}, {1, 1, 1, 1}), values(keys, {1, S, 1}), values({weight}, {1, 1, 1})}, top_k));
  };
  CHECK(chosen({1, 1, 1, 1, 1}, 1, 3) == std::vector<std::int32_t>{0, 1, 2});
  CHECK(chosen({-1, 2, -3, 2, -1}, 1, 3) == std::vector<std::int32_t>{0, 1, 3});
  CHECK(chosen({-1, 2, -3, 0, -1}, -1, 3) == std::vector<std::int32_t>{0, 2, 3});
  CHECK(chosen({0, kNan, 1, kInfinity, 2}, 1, 3) == std::vector<std::int32_t>{2, 3, 4});
  CHECK(chosen({3, 1}, 1, 5) == std::vector<std::int32_t>{0, 1});
}

TEST_CASE("choices, outputs, scores and gradients are those of plain loops and masks") {
  Generator random(test_seed(1));
  for (const SparseCase& c : kSparseCases) check_case(c, causal_masks(), random);
}

TEST_CASE("padding, lengths, windows, prefixes, packed sequences and both directions") {
  Generator random(test_seed(2));
  const SparseCase c{2, 23, 23, 2, 4, 3, 6, 4, 5};
  for (AttentionMasks masks : masks_of_23_tokens()) {
    if (masks.key_mask.defined()) std::fill_n(masks.key_mask.data<bool>() + 9, 5, false);  // a hole
    check_case(c, masks, random);
  }
  AttentionMasks packed = causal_masks();
  packed.query_starts = integers({0, 9, 9, 23}, {4});
  check_case({1, 23, 23, 2, 4, 3, 6, 4, 5}, packed, random);
}

TEST_CASE("keys that nobody chose may hold NaN") {
  Generator random(test_seed(3));
  const SparseCase c{1, 12, 12, 2, 4, 2, 4, 3, 3};
  const SparseInputs in = sparse_inputs(c, random);
  AttentionMasks masks = causal_masks();
  masks.key_mask = booleans({1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 0, 0}, {1, 12});
  const auto holding = [&](double value) {
    const Tensor latents = in.latents.clone(), key = in.index.key.clone();
    for (const Index s : {2, 7, 10, 11}) {
      std::fill_n(latents.data<double>() + s * c.N, c.N, value);
      std::fill_n(key.data<double>() + s * c.index_width, c.index_width, value);
    }
    const Tensor chosen = choose_keys({in.index.query, key, in.index.weights}, c.top_k, masks);
    return run_op(attention_to(c, chosen), {in.query, latents}, in.seed);
  };
  const OpResult expected = holding(0), got = holding(kNan);
  check_same_bits(got, expected);
}

TEST_CASE("weights are zero outside of the choice, and shares are their means") {
  Generator random(test_seed(4));
  const SparseCase c{2, 14, 14, 2, 4, 5, 4, 3, 4};
  const SparseInputs in = sparse_inputs(c, random);
  const Tensor chosen = choose_keys(in.index, c.top_k, causal_masks());
  Tensor got, expected, shares;
  SparseOptions options;
  options.value_width = c.E, options.scale = 0.3, options.weights = &got;
  sparse_attention(in.query, in.latents, chosen, options);
  masked_attention(c, chosen, &expected)({in.query, in.latents});
  CHECK(got.to_vector<double>() == expected.to_vector<double>());
  options.weights = nullptr, options.shares = &shares;
  sparse_attention(in.query, in.latents, chosen, options);
  const std::vector<double> means = mean(expected, {1}).to_vector<double>(), own = shares.to_vector<double>();
  const std::vector<std::int32_t> keys = integers_of(chosen);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Index row = static_cast<Index>(i) / c.top_k, s = keys[i] - row / c.T * c.S;
    const bool is_left = keys[i] == c.B * c.S;
    CHECK_BELOW(std::abs(own[i] - (is_left ? 0 : means[static_cast<std::size_t>(row * c.S + s)])), 1e-14);
  }
}

TEST_CASE("gradients of both orders") {
  Generator random(test_seed(5));
  const SparseCase c{2, 7, 7, 2, 3, 3, 4, 3, 3};
  SparseInputs in = sparse_inputs(c, random);
  while (least_product(in.index) < 0.02) in = sparse_inputs(c, random);  // which no step takes below zero
  const Tensor chosen = choose_keys(in.index, c.top_k, causal_masks());
  SparseOptions options;
  options.value_width = c.E, options.scale = 0.7;
  check_both_orders(
      "sparse_attention", [&] { return sparse_attention(in.query, in.latents, chosen, options); },
      {{"query", in.query}, {"latents", in.latents}}, 12);
  const IndexHeads& index = in.index;
  check_both_orders(
      "index_scores", [&] { return where_chosen(index_scores(index, chosen)); },
      {{"query", index.query}, {"key", index.key}, {"weights", index.weights}}, 12);
}

TEST_CASE("bits do not depend on the number of threads") {
  if (default_device().is_cuda()) return;
  Generator random(test_seed(6));
  const SparseCase c{2, 90, 90, 3, 8, 4, 70, 40, 20};
  const SparseInputs in = sparse_inputs(c, random);
  check_on_any_threads([&] {
    const Tensor chosen = choose_keys(in.index, c.top_k, causal_masks());
    OpResult result = run_op(attention_to(c, chosen), {in.query, in.latents}, in.seed);
    const OpResult scores = run_op(scores_of(chosen), {in.index.query, in.index.key, in.index.weights},
                                   Tensor::full(chosen.shape(), 1));
    result.gradients.insert(result.gradients.end(), scores.gradients.begin(), scores.gradients.end());
    return result;
  });
}

TEST_CASE("the error in f32 is that of attention to the same keys in f32") {
  Generator random(test_seed(7));
  const Index T = default_device().is_cuda() ? 80 : 200;  // which take an emulator seconds
  const SparseCase c{1, T, T, 2, 16, 4, 48, 32, 60};
  SparseInputs in = sparse_inputs(c, random);
  const Tensor chosen = choose_keys(in.index, c.top_k, causal_masks());
  for (const double size : {1.0, 5.0}) {  // large scores too
    const std::vector<Tensor> x{in.query * size, in.latents},
        narrow{x[0].to(DType::f32), x[1].to(DType::f32)};
    const OpResult exact = run_op(masked_attention(c, chosen), x, in.seed),
                   plain = run_op(masked_attention(c, chosen), narrow, in.seed),
                   got = run_op(attention_to(c, chosen), narrow, in.seed);
    check_as_exact_as(plain, got, exact);
  }
}

TEST_CASE("no keys, no queries, and what is refused") {
  Generator random(test_seed(8));
  for (const SparseCase& c : {SparseCase{2, 3, 0, 2, 4, 2, 5, 4, 2}, SparseCase{2, 0, 3, 2, 4, 2, 5, 4, 2}}) {
    const SparseInputs in = sparse_inputs(c, random);
    const Tensor chosen = choose_keys(in.index, c.top_k, {});
    const OpResult result = run_op(attention_to(c, chosen), {in.query, in.latents}, in.seed);
    CHECK(result.y.to_vector<double>() == std::vector<double>(static_cast<std::size_t>(c.B * c.T * 8), 0));
    CHECK(result.gradients[0].elements() == in.query.elements());
  }
  const SparseInputs in = sparse_inputs({1, 4, 4, 2, 3, 2, 4, 3, 2}, random);
  AttentionMasks masks;
  masks.mask = Tensor::zeros({4, 4});
  CHECK(message_of<Error>([&] { choose_keys(in.index, 2, masks); }) ==
        "[choose_keys] a mask of pairs is not implemented; got mask; try causal, a window, or lengths");
  masks.mask = {}, masks.key_mask = booleans({1, 1, 1}, {1, 3});
  CHECK_THROWS_AS(choose_keys(in.index, 2, masks), ShapeError);
  CHECK_THROWS_AS(choose_keys(in.index, 0), ShapeError);
  CHECK_THROWS_AS(choose_keys({in.index.query, in.index.key, in.query}, 2), ShapeError);
  CHECK_THROWS_AS(index_scores(in.index, integers({0}, {1, 1, 1})), ShapeError);
  if (default_device().is_cuda()) return;  // where choices are not read
  for (const auto& [a, b] : {std::pair(1, 0), {0, 0}, {4, 0}, {0, 5}, {-1, 0}})
    CHECK_THROWS_WITH_AS(index_scores(in.index, integers({a, b, 0, 1, 0, 1, 0, 1}, {1, 4, 2})),
                         doctest::Contains("ascending; got chosen=i32[1,4,2], query=0"), ShapeError);
}
