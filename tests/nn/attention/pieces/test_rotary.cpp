#include <tapeformer/tests/nn/attention/multi_head_case.h>

#include <algorithm>

using namespace tapeformer;

namespace {

AttentionConfig rotating(const char* kind, RotaryLayout layout = RotaryLayout::interleaved) {
  return layer_config(kind, [&](auto& c) { c.rotary = true, c.rotations.layout = layout; });
}

}  // namespace

TEST_CASE("queries and keys are those of the formula in both layouts") {
  for (const RotaryLayout layout : {RotaryLayout::interleaved, RotaryLayout::half_split})
    check_formula([layout](auto& c) { c.rotations.layout = layout; }, {});
}

TEST_CASE("only distances matter, padding on the left may shift them, and the limit is stated") {
  AttentionConfig config = rotating("gqa");
  config.rotations.max_positions = 110;
  const MultiHeadAttention layer = random_module<MultiHeadAttention>(config);
  const Tensor x = random_values({2, 4, 6}, 3);
  AttentionContext context = causal_context();
  const Tensor y = layer(x, x, context);
  const auto at = [&](const std::vector<std::int32_t>& positions, const Shape& shape) {
    context.positions = ids_of(positions, shape);
    return layer(x, x, context);
  };
  CHECK(same_bits(at({0, 1, 2, 3}, {4}), y));
  CHECK_BELOW(relative_error(at({100, 101, 102, 103, 7, 8, 9, 10}, {2, 4}), y), 1e-12);
  CHECK(relative_error(at({0, 2, 4, 6}, {4}), y) > 1e-3);
  CHECK_THROWS_WITH_AS(at({107, 108, 109, 110}, {4}),
                       doctest::Contains("positions must be below max_positions=110; got 110"), ShapeError);

  const Tensor padded = concat({random_values({2, 2, 6}, 5), x}, 1);
  context.positions = ids_of({0, 0, 0, 1, 2, 3}, {6});
  context.key_mask = Tensor::full({2, 6}, 1, DType::boolean);
  for (const Index b : {0, 1}) std::fill_n(context.key_mask.data<bool>() + 6 * b, 2, false);
  CHECK_BELOW(relative_error(slice(layer(padded, padded, context), 1, 2, 4), y), 1e-12);
}

TEST_CASE("positions continue from the cached tokens, unless they are given") {
  const Rotary rotary(RotaryConfig(), 4);
  const auto cache = make_cache({}, {3, 2});
  AttentionContext context;
  const auto angles = [&](Index length) {
    return rotary.angles(random_values({2, length, 4}, 1), context).table;
  };
  const auto expected = [&](const std::vector<std::int32_t>& at) {
    return rotary_angles({}, 4, ids_of(at, {static_cast<Index>(at.size())}), angles(1).dtype()).table;
  };
  CHECK(absolute_error(angles(3), expected({0, 1, 2})) == 0);
  context.cache = cache.get();
  cache->append(random_values({2, 4, 3}, 2), random_values({2, 4, 2}, 3));
  CHECK(absolute_error(angles(2), expected({4, 5})) == 0);
  context.positions = ids_of({9, 3}, {2});
  CHECK(absolute_error(angles(2), expected({9, 3})) == 0);
  context.angles = {expected({1, 7}), RotaryLayout::half_split};
  CHECK(angles(2).state() == context.angles.table.state());
}

TEST_CASE("rotary positions are for self-attention") {
  const Tensor x = random_values({2, 4, 6}, 3);
  for (const char* const kind : {"mha", "gqa", "mqa"}) {
    const MultiHeadAttention layer = random_module<MultiHeadAttention>(rotating(kind));
    CHECK(message_of<Error>([&] { layer(x, x.clone()); }) ==
          "[multi_head] rotary positions are for self-attention; got a memory that is not the query; try "
          "cross=true");
  }
}
