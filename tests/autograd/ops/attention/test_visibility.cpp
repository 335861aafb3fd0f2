#include <tapeformer/autograd/ops/attention/visibility.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/ops/attention_case.h>

using namespace tapeformer;

namespace {

/// "0-3 2-2": the ranges, query by query.
std::string ranges(const AttentionMasks& masks, Index B, Index T, Index S) {
  const VisibleKeys visible = visible_keys(masks, B, T, S, default_device());
  if (!visible.defined()) return "all";
  std::string text;
  for (Index row = 0; row < B * T; ++row) {
    const int from = static_cast<int>(visible.from.at(row)), to = static_cast<int>(visible.to.at(row));
    text += (row > 0 ? " " : "") + (from == to ? "-" : std::to_string(from) + "-" + std::to_string(to));
  }
  return text;
}

/// B, T, positions, H, G, D, E, and the span and stride of keys.
struct SpanCase {
  Index B, T, positions, H, G, D, E, span, stride;
  Index keys() const { return positions < span ? 0 : (positions - span) / stride + 1; }
};

}  // namespace

TEST_CASE("nothing is restricted without masks, or by a mask over pairs") {
  AttentionMasks masks;
  CHECK(ranges(masks, 2, 3, 4) == "all");
  masks.mask = booleans({1}, {1});
  masks.prefix_lengths = integers({2, 2}, {2});
  CHECK(ranges(masks, 2, 3, 4) == "all");
}

TEST_CASE("windows count from the query's position, to both sides, and cut the prefix too") {
  AttentionMasks masks;
  masks.window_before = 1;
  CHECK(ranges(masks, 1, 4, 4) == "0-4 0-4 1-4 2-4");
  masks.window_after = 0;
  CHECK(ranges(masks, 1, 4, 4) == "0-1 0-2 1-3 2-4");
  CHECK(ranges(masks, 1, 2, 4) == "1-3 2-4");
  masks.window_after = 2;
  CHECK(ranges(masks, 1, 4, 4) == "0-3 0-4 1-4 2-4");
  masks.causal = true;
  masks.prefix_lengths = integers({3}, {1});
  CHECK(ranges(masks, 1, 4, 4) == "0-3 0-3 1-3 2-4");
  masks.window_before = masks.window_after = std::numeric_limits<Index>::max();
  CHECK(ranges(masks, 1, 4, 4) == "0-3 0-3 0-3 0-4");
}

TEST_CASE("row masks empty the ranges of queries and cut them to real keys") {
  AttentionMasks masks;
  masks.query_mask = booleans({1, 0, 1}, {1, 3});
  CHECK(ranges(masks, 1, 3, 4) == "0-4 - 0-4");
  masks.key_mask = booleans({0, 1, 0, 1, 0}, {1, 5});
  CHECK(ranges(masks, 1, 3, 5) == "1-4 - 1-4");
  masks.causal = true;
  masks.alignment = CausalAlignment::top_left;
  CHECK(ranges(masks, 1, 3, 5) == "- - 1-2");
  const VisibleKeys visible = visible_keys(masks, 1, 3, 5, default_device());
  const Tensor real = masks.key_mask.alias({1, 1, 1, 5});
  const SeenRows seen = seen_rows(logical_and(visible_pairs(visible, 5), real), {1, 1, 3, 5}, 1);
  CHECK(seen.keys.to_vector<bool>() == std::vector<bool>{false, true, false, false, false});
  CHECK(seen.queries.to_vector<bool>() == std::vector<bool>{false, false, true});
}

TEST_CASE("packed sequences see their own keys; positions, lengths and prefixes count from their start") {
  AttentionMasks masks;
  masks.query_starts = integers({0, 2, 2, 5}, {4});
  CHECK(ranges(masks, 1, 5, 5) == "0-2 0-2 2-5 2-5 2-5");
  masks.causal = true;
  CHECK(ranges(masks, 1, 5, 5) == "0-1 0-2 2-3 2-4 2-5");
  masks.key_starts = integers({0, 3, 4, 8}, {4});
  CHECK(ranges(masks, 1, 5, 8) == "0-2 0-3 4-6 4-7 4-8");
  masks.key_lengths = integers({2, 1, 3}, {3});
  CHECK(ranges(masks, 1, 5, 8) == "0-1 0-2 4-5 4-6 4-7");
  masks.prefix_lengths = integers({0, 0, 2}, {3});
  CHECK(ranges(masks, 1, 5, 8) == "0-1 0-2 4-6 4-6 4-7");
  const Tensor pairs = visible_pairs(visible_keys(masks, 1, 5, 8, default_device()), 8);
  CHECK(seen_rows(pairs, {1, 1, 5, 8}, 1).keys.to_vector<bool>() ==
        std::vector<bool>{true, true, false, false, true, true, true, false});
}

TEST_CASE("wrong starts, which a GPU reports later, lead to no keys beyond the last") {
  AttentionMasks masks;
  masks.query_starts = integers({0, 2, 5}, {3});
  masks.key_starts = integers({-3, 99, 4}, {3});
  CHECK(ranges(masks, 1, 5, 8) == "0-8 0-8 - - -");
  masks.key_starts = integers({6, 2, 2000000000}, {3});
  CHECK(ranges(masks, 1, 5, 8) == "- - 2-8 2-8 2-8");
  masks.causal = true;
  masks.key_starts = integers({-2000000000, 2000000000, -2000000000}, {3});
  CHECK(ranges(masks, 1, 5, 8) == "0-7 0-8 - - -");
}

TEST_CASE("an additive mask hides pairs only at minus infinity; rows are seen by head and by group") {
  CHECK(!pairs_left_in(Tensor()).defined());
  CHECK(pairs_left_in(values({0, -3e38, kNan}, {3})).to_vector<bool>() == std::vector<bool>(3, true));
  const Tensor mask = values({-kInfinity, 1, -kInfinity, -kInfinity, -kInfinity, kInfinity}, {2, 1, 3});
  const Tensor pairs = pairs_left_in(mask);
  CHECK(pairs.to_vector<bool>() == std::vector<bool>{false, true, false, false, false, true});
  const Shape scores{1, 2, 2, 3};
  const SeenRows of_each = seen_rows(pairs, scores, 2), shared = seen_rows(pairs, scores, 1);
  CHECK(of_each.keys.to_vector<bool>() == std::vector<bool>{false, false, true, false, false, true});
  CHECK(shared.keys.to_vector<bool>() == std::vector<bool>{false, true, true});
  CHECK(shared.queries.to_vector<bool>() == std::vector<bool>{true, true, true, true});
  const SeenRows halved = seen_rows(booleans({1, 0, 0, 0}, {2, 2, 1}), scores, 2);  // head 0's query 0
  CHECK(halved.queries.to_vector<bool>() == std::vector<bool>{true, false, false, false});
  CHECK(halved.keys.to_vector<bool>() == std::vector<bool>{true, false, true, false, true, false});
}

TEST_CASE("keys that cover several positions are seen from the last of them on") {
  Generator random(test_seed(1));
  for (const SpanCase& c : {SpanCase{2, 33, 33, 4, 2, 4, 5, 4, 2}, SpanCase{1, 70, 70, 2, 1, 8, 8, 3, 1},
                            SpanCase{2, 5, 41, 2, 2, 4, 3, 6, 3},  // the last queries of a cache
                            SpanCase{2, 3, 3, 2, 1, 4, 4, 8, 4}, SpanCase{1, 9, 9, 1, 1, 2, 2, 2, 2}}) {
    CAPTURE(c.T);
    CAPTURE(c.span);
    const Index keys = c.keys();
    const std::vector<Tensor> in = random_inputs(c.B, c.T, keys, c.H, c.G, c.D, c.E, random).list();
    const Tensor seed = random_normal({c.B, c.T, c.H, c.E}, random);
    // The second row has fewer positions than the first.
    std::vector<int> lengths(static_cast<std::size_t>(c.B), static_cast<int>(c.positions)), pairs;
    if (c.B > 1 && c.positions > c.T) lengths[1] -= 4;
    for (const int length : lengths)
      for (Index t = 0; t < c.T; ++t)
        for (Index s = 0; s < keys; ++s) pairs.push_back(s * c.stride + c.span <= length - c.T + t + 1);
    AttentionOptions spans(causal_masks()), masked;
    spans.key_span = c.span, spans.key_stride = c.stride;
    spans.key_lengths = integers(lengths, {c.B});
    masked.mask = booleans(pairs, {c.B, 1, c.T, keys});
    const OpResult expected = run_op(attention_by(composed_attention, masked), in, seed);
    for (const AttentionFunction path : kAttentionPaths)
      check_op(attention_by(path, spans), in, seed, expected);
  }
}

TEST_CASE("what spans of keys need and exclude is named") {
  const Tensor x = Tensor::zeros({1, 4, 2, 3});
  const auto refuses = [&](const std::function<void(AttentionOptions&)>& change) {
    AttentionOptions options;
    options.causal = true, options.key_span = 2, options.key_lengths = integers({4}, {1});
    change(options);
    const std::string message =
        message_of<ShapeError>([&] { scaled_dot_product_attention(x, x, x, options); });
    return message.find(
               "[scaled_dot_product_attention] keys that cover several positions need a causal mask and "
               "key_lengths, and exclude windows, prefixes, packed sequences and relative biases; got ") == 0;
  };
  CHECK_FALSE(refuses([](AttentionOptions&) {}));
  CHECK(refuses([](AttentionOptions& o) { o.causal = false; }));
  CHECK(refuses([](AttentionOptions& o) { o.key_lengths = {}; }));
  CHECK(refuses([](AttentionOptions& o) { o.window_before = 2; }));
  CHECK(refuses([](AttentionOptions& o) { o.prefix_lengths = integers({1}, {1}); }));
  CHECK(refuses([](AttentionOptions& o) { o.relative_bias = Tensor::zeros({1, 7}); }));
  CHECK(refuses([](AttentionOptions& o) { o.key_stride = 0; }));
  CHECK(refuses([](AttentionOptions& o) { o.key_stride = 3; }));
}
