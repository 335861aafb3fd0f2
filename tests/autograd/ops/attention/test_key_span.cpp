#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/tests/autograd/ops/op_case.h>

using namespace tapeformer;

namespace {

/// B, T, positions, H, G, D, E, and the span and stride of keys.
struct SpanCase {
  Index B, T, positions, H, G, D, E, span, stride;
  Index keys() const { return positions < span ? 0 : (positions - span) / stride + 1; }
};

}  // namespace

TEST_CASE("keys that cover several positions are seen from the last of them on") {
  Generator random(test_seed(1));
  for (const SpanCase& c : {SpanCase{2, 33, 33, 4, 2, 4, 5, 4, 2}, SpanCase{1, 70, 70, 2, 1, 8, 8, 3, 1},
                            SpanCase{2, 5, 41, 2, 2, 4, 3, 6, 3},  // the last queries of a cache
                            SpanCase{2, 3, 3, 2, 1, 4, 4, 8, 4}, SpanCase{1, 9, 9, 1, 1, 2, 2, 2, 2}}) {
    CAPTURE(c.T);
    CAPTURE(c.span);
    const Index keys = c.keys();
    const std::vector<Tensor> in{random_normal({c.B, c.T, c.H, c.D}, random),
                                 random_normal({c.B, keys, c.G, c.D}, random),
                                 random_normal({c.B, keys, c.G, c.E}, random)};
    const Tensor seed = random_normal({c.B, c.T, c.H, c.E}, random);
    // The second row has fewer positions than the first.
    std::vector<int> lengths(static_cast<std::size_t>(c.B), static_cast<int>(c.positions)), pairs;
    if (c.B > 1 && c.positions > c.T) lengths[1] -= 4;
    for (const int length : lengths)
      for (Index t = 0; t < c.T; ++t)
        for (Index s = 0; s < keys; ++s) pairs.push_back(s * c.stride + c.span <= length - c.T + t + 1);
    AttentionOptions spans, masked;
    spans.causal = true, spans.key_span = c.span, spans.key_stride = c.stride;
    spans.key_lengths = integers(lengths, {c.B});
    masked.mask = booleans(pairs, {c.B, 1, c.T, keys});
    const auto attention_with = [](const AttentionOptions& options, auto* attention) {
      return [=](const std::vector<Tensor>& x) { return attention(x[0], x[1], x[2], options); };
    };
    const OpResult expected = run_op(attention_with(masked, composed_attention), in, seed);
    check_op(attention_with(spans, scaled_dot_product_attention), in, seed, expected);
    check_op(attention_with(spans, composed_attention), in, seed, expected);
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
               "key_lengths, and exclude windows, prefixes and packed sequences; got key_stride=") == 0;
  };
  CHECK_FALSE(refuses([](AttentionOptions&) {}));
  CHECK(refuses([](AttentionOptions& o) { o.causal = false; }));
  CHECK(refuses([](AttentionOptions& o) { o.key_lengths = {}; }));
  CHECK(refuses([](AttentionOptions& o) { o.window_before = 2; }));
  CHECK(refuses([](AttentionOptions& o) { o.prefix_lengths = integers({1}, {1}); }));
  CHECK(refuses([](AttentionOptions& o) { o.key_stride = 0; }));
  CHECK(refuses([](AttentionOptions& o) { o.key_stride = 3; }));
}
