#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/ops/rotary_case.h>
#include <tapeformer/tests/reference/rounding.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace tapeformer;

namespace {

/// Rotates x's pairs by `sign` times their angles, as complex numbers.
Tensor turned(const Tensor& x, const Tensor& positions, double base, RotaryLayout layout, double sign) {
  const Index T = x.size(1), H = x.size(2), D = x.size(3);
  return filled(x.shape(), [&](Index element) {
    const Index d = element % D, row = element / D / H;
    const bool interleaved = layout == RotaryLayout::interleaved;
    const Index pair = interleaved ? d / 2 : d % (D / 2);
    const bool is_first = interleaved ? d % 2 == 0 : d < D / 2;
    const Index step = interleaved ? 1 : D / 2;
    const double position = positions.at(positions.rank() == 1 ? row % T : row);
    const double angle =
        sign * position * std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(D));
    return is_first ? x.at(element) * std::cos(angle) - x.at(element + step) * std::sin(angle)
                    : x.at(element - step) * std::sin(angle) + x.at(element) * std::cos(angle);
  });
}

}  // namespace

TEST_CASE("pairs worked by hand: base 1 turns each by the position itself") {
  const double quarter = M_PI / 2;  // not an integer: reached with base (2 / pi)^2 at pair 1 of 2
  const double base = 1 / (quarter * quarter);
  const Tensor x = values({1, 2, 3, 4}, {1, 1, 1, 4}), at = integers({1}, {1});
  const double c = std::cos(1), s = std::sin(1);
  CHECK_BELOW(relative_error(rotary(x, at, with(base, RotaryLayout::interleaved)),
                             values({c - 2 * s, s + 2 * c, -4, 3}, {1, 1, 1, 4})),
              kFewRoundings);
  CHECK_BELOW(relative_error(rotary(x, at, with(base, RotaryLayout::half_split)),
                             values({c - 3 * s, -4, s + 3 * c, 2}, {1, 1, 1, 4})),
              kFewRoundings);
  CHECK(rotary(x, integers({0}, {1})).to_vector<double>() == std::vector<double>{1, 2, 3, 4});
}

TEST_CASE("values and gradients equal the definition at every width, near, far and in any order") {
  Generator random(test_seed(1));
  for (const RotaryLayout layout : kLayouts) {
    for (const Index D : {2, 30, 32, 34, 62, 64, 66, 258}) {
      for (const Tensor& at :
           {positions_from(0, 7), positions_from(100000, 7), random_ids({2, 7}, 4000, random)}) {
        CAPTURE(D);
        CAPTURE(at.at(0));
        const Tensor x = random_normal({2, 7, 3, D}, random), seed = random_normal(x.shape(), random);
        check_op([&](const auto& in) { return rotary(in[0], at, with(10000, layout)); }, {x}, seed,
                 {turned(x, at, 10000, layout, 1), {turned(seed, at, 10000, layout, -1)}});
      }
    }
  }
}

TEST_CASE("nothing in, nothing out") {
  CHECK(rotary(Tensor::zeros({2, 0, 3, 4}), Tensor::empty({0}, DType::i32)).shape() == Shape{2, 0, 3, 4});
  CHECK(rotary(Tensor::zeros({0, 2, 3, 4}), positions_from(0, 2)).shape() == Shape{0, 2, 3, 4});
}

TEST_CASE("gradients of both orders, added to another use's") {
  Generator random(test_seed(4));
  const Tensor x = random_normal({2, 3, 2, 6}, random), at = integers({0, 100, 7}, {3});
  for (const RotaryLayout layout : kLayouts) {
    check_both_orders(
        layout == RotaryLayout::interleaved ? "rotary, interleaved" : "rotary, half split",
        [&] { return pow(rotary(x, at, with(10000, layout)), 2) + rotary(x, at, with(3, layout)); },
        {{"x", x}});
  }
}

TEST_CASE("golden values") {
  const Golden golden("ops");
  for (const char* name :
       {"rotary_interleaved", "rotary_half", "rotary_interleaved_offset", "rotary_half_offset"}) {
    const auto given = golden.options(name);
    const Tensor at = positions_from(given["offset"].get<Index>(), 5);
    const RotaryLayout layout = kLayouts[given["interleaved"].get<bool>() ? 0 : 1];
    check_golden(golden, name, {"x"}, [&](const auto& in) {
      return rotary(in[0], at, with(given["base"].get<double>(), layout));
    });
  }
}

TEST_CASE("a partial width, interpolated positions and Llama 3's frequencies are PyTorch's") {
  const Golden golden("grouped_latent");
  for (const char* name : {"rotary_partial", "rotary_partial_half", "rotary_linear", "rotary_llama3"}) {
    const auto given = golden.options(name);
    RotaryConfig config =
        with(given["base"].get<double>(), kLayouts[given["interleaved"].get<bool>() ? 0 : 1]);
    config.width = given["width"].get<Index>();
    if (given.contains("factor")) config.factor = given["factor"].get<double>();
    if (given.contains("llama3")) {
      config.factor = given["llama3"]["factor"].get<double>();
      config.original_context = given["llama3"]["original_max_position_embeddings"].get<Index>();
    }
    check_golden(golden, name, {"x", "positions"},
                 [&](const auto& in) { return rotary(in[0], in[1], config); });
  }
}

TEST_CASE("the first heads of a packed projection are rotated, in place where nothing else holds it") {
  Generator random(test_seed(5));
  const Index B = 2, T = 5, heads = 3, D = 6, rest = 7, N = heads * D + rest;
  for (const RotaryLayout layout : kLayouts) {
    for (const Index width : {0, 4}) {
      RotaryConfig config = with(50, layout);
      config.width = width;
      const Tensor x = random_normal({B, T, N}, random), before = x.clone(), at = positions_from(3, T);
      const Tensor expected =
          concat({reshape(rotary(reshape(slice(x, 2, 0, heads * D), {B, T, heads, D}), at, config),
                          {B, T, heads * D}),
                  slice(x, 2, heads * D, rest)},
                 2);
      const RotaryAngles angles = rotary_angles(config, D, 3, T, x.dtype(), x.device());
      CHECK(angles.table.shape() == Shape{T, 2, (width > 0 ? width : D) / 2});
      for (const RotaryAngles& equal : {angles, rotary_angles(config, D, at, x.dtype())})
        CHECK(absolute_error(packed_rotary(x, heads, D, equal), expected) == 0);
      CHECK(absolute_error(x, before) == 0);
      Tensor own = x.clone();
      const void* memory = own.state()->storage->data;
      const Tensor y = packed_rotary(std::move(own), heads, D, angles);
      CHECK(y.state()->storage->data == memory);
      CHECK(absolute_error(y, expected) == 0);
      // A tape that needs x's values keeps them.
      Tape tape;
      tape.watch(x);
      const Tensor power = packed_rotary(exp(x), heads, D, angles);
      CHECK_BELOW(relative_error(tape.gradients(power, {x}, power)[0], exp(x) * exp(x)), 1e-12);
      check_both_orders("rotary, packed", [&] { return pow(packed_rotary(x, heads, D, angles), 2); },
                        {{"x", x}});
    }
  }
}

TEST_CASE("odd widths and positions that do not fit are refused by name") {
  const Tensor x = Tensor::zeros({2, 3, 1, 4});
  const auto says = [](const Tensor& input, const Tensor& at, Index width) {
    RotaryConfig config;
    config.width = width;
    return message_of<ShapeError>([&] { rotary(input, at, config); });
  };
  for (const Index width : {3, 6})
    CHECK(says(x, positions_from(0, 3), width) ==
          "[rotary] the width that is rotated must be even, and within a head; got width=" +
              std::to_string(width) + ", head_width=4");
  CHECK(says(Tensor::zeros({2, 3, 1, 5}), positions_from(0, 3), 0).find("width=5") != std::string::npos);
  const RotaryAngles angles = rotary_angles({}, 4, positions_from(0, 3), DType::f32);
  constexpr Index kMost = std::numeric_limits<Index>::max();
  for (const auto& [heads, width] : {std::pair<Index, Index>{2, 4}, {-1, 4}, {1, -4}, {-1, -4}, {kMost, 4}}) {
    CHECK(message_of<ShapeError>([&, heads = heads, width = width] {
            packed_rotary(Tensor::zeros({2, 3, 7}), heads, width, angles);
          })
              .find("[packed_rotary] x must be [B, T, N] with N >= heads * head_width, neither negative; "
                    "got ") == 0);
  }
  CHECK(message_of<DTypeError>([&] { rotary(x, Tensor::zeros({3})); }) ==
        "[rotary] indices must be i32; got positions=f32[3]; try to(DType::i32)");
}

TEST_CASE("YaRN keeps fast pairs, slows slow ones and blends by the number of the pair between them") {
  RotaryConfig config;
  config.base = 100, config.factor = 4, config.original_context = 64, config.yarn = true;
  config.attention_factor = 1.25;
  // Of 8 pairs, number 8 log(64 / (2 pi r)) / log(100) turns r times: below 0 for 32, so 0, 1.62 for 4, so
  // that pairs up to 1 stay, and 4.03 for 1.
  const auto pair = [](double turns) { return 8 * std::log(64 / (2 * M_PI * turns)) / std::log(100); };
  for (const auto& [first, last, most, whole] :
       {std::tuple(1.0, 5.0, 4.0, true), {0.0, 5.0, 32.0, true}, {pair(4), pair(1), 4.0, false}}) {
    config.high_frequency = most, config.whole_pairs = whole;
    const RotaryAngles angles = rotary_angles(config, 16, 3, 1, DType::f64, Device::cpu());
    for (Index i = 0; i < 8; ++i) {
      const double plain = std::pow(100.0, -static_cast<double>(i) / 8);
      const double scaled = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
      const double angle = 3 * plain * (1 - scaled + scaled / 4);
      CHECK_BELOW(deviation(angles.table.at(i), 1.25 * std::cos(angle)), 1e-13);
      CHECK_BELOW(deviation(angles.table.at(8 + i), 1.25 * std::sin(angle)), 1e-13);
    }
  }
  Generator random(test_seed(1));
  const Tensor x = random_normal({2, 3, 2, 16}, random), seed = random_normal(x.shape(), random);
  Tape tape;
  tape.watch(x);
  const Tensor y = rotary(x, positions_from(1, 3), config);
  CHECK_BELOW(
      relative_error(tape.gradients(y, {x}, seed)[0], rotary(seed, integers({-1, -2, -3}, {3}), config)),
      1e-14);
}

TEST_CASE("reversed rotations are those of negative positions") {
  RotaryConfig config;
  config.factor = 2;
  Generator random(test_seed(1));
  const Tensor x = random_normal({2, 3, 2, 8}, random);
  const Tensor expected = rotary(x, integers({-1, -2, -3}, {3}), config);
  config.reversed = true;
  CHECK_BELOW(relative_error(rotary(x, positions_from(1, 3), config), expected), 1e-14);
}

TEST_CASE("invalid angles and negative sizes are refused") {
  const Tensor x = Tensor::zeros({1, 2, 1, 4});
  const auto says = [&](const auto& set) {
    RotaryConfig config;
    set(config);
    return message_of<ShapeError>([&] { rotary(x, positions_from(0, 2), config); });
  };
  const auto is_refused = [&](const char* rule, const auto& set) {
    CHECK(says(set).find(std::string("[rotary] ") + rule + "; got ") == 0);
  };
  for (const double bad : {0.0, -2.0, kNan, kInfinity}) {
    is_refused("base must be positive and finite", [&](auto& c) { c.base = bad; });
    is_refused("factor must be positive and finite", [&](auto& c) { c.factor = bad; });
    is_refused("attention_factor must be positive and finite", [&](auto& c) { c.attention_factor = bad; });
  }
  is_refused("YaRN needs an original_context", [](auto& c) { c.yarn = true; });
  CHECK(says([](auto& c) { c.yarn = true, c.original_context = -5; }).find("got original_context=-5;") !=
        std::string::npos);
  is_refused("width must not be negative", [](auto& c) { c.width = -2; });
  for (const double low : {4.0, 5.0, kNan})
    is_refused("low_frequency must be below high_frequency",
               [&](auto& c) { c.original_context = 8, c.low_frequency = low; });
  for (const auto& [base, low] : {std::pair(1.0, 1.0), {10000.0, -1.0}})
    is_refused("the frequencies of all pairs must be finite", [base = base, low = low](auto& c) {
      c.yarn = true, c.original_context = 64, c.base = base, c.low_frequency = low;
    });
  CHECK(says([](auto& c) { c.base = 0; }) ==
        "[rotary] base must be positive and finite; got base=0; try 10000");
}

TEST_CASE("rotating in place does not change gradients, and a seed stays as it is") {
  Generator random(test_seed(8));
  const Tensor x = random_normal({2, 5, 24}, random), seed = random_normal({2, 5, 24}, random);
  const RotaryAngles angles = rotary_angles({}, 4, random_ids({2, 5}, 90, random), x.dtype());
  const auto in_place = [&](const auto& in) { return 2 * packed_rotary(3 * in[0], 4, 4, angles); };
  const auto apart = [&](const auto& in) {
    const Tensor three = 3 * in[0], y = packed_rotary(three, 4, 4, angles);
    return 2 * y;
  };
  const OpResult got = run_op(in_place, {x}, seed), expected = run_op(apart, {x}, seed);
  CHECK(absolute_error(got.y, expected.y) == 0);
  CHECK(absolute_error(got.gradients[0], expected.gradients[0]) == 0);
  Tape tape;
  tape.watch(x);
  const Tensor y = packed_rotary(x, 4, 4, angles), before = seed.clone();
  tape.gradients(y, {x}, seed);
  CHECK(absolute_error(seed, before) == 0);
  check_both_orders("rotary, in place",
                    [&] {
                      return pow(rotary(2 * reshape(x, {2, 5, 6, 4}), angles), 2);
                    },
                    {{"x", x}});
}

TEST_CASE("angles of other tokens, of too many pairs and beyond the limit are refused") {
  const Tensor x = Tensor::zeros({2, 3, 1, 4});
  const RotaryAngles longer = rotary_angles({}, 4, 0, 4, x.dtype(), x.device());
  CHECK(message_of<ShapeError>([&] { rotary(x, longer); }) ==
        "[rotary] the angles must be those of x's tokens, with no more pairs than a head has; got "
        "x=f32[2,3,1,4], head_width=4, angles=f32[4,2,2]");
  CHECK_THROWS_WITH_AS(packed_rotary(Tensor::zeros({2, 4, 6}), 2, 2, longer),
                       doctest::Contains("[packed_rotary] the angles must be"), ShapeError);
  CHECK_THROWS_WITH_AS(rotary_angles({}, 4, integers({0, 1}, {1, 2, 1}), x.dtype()),
                       "[rotary] positions must be [T] or [B, T]; got positions=i32[1,2,1]", ShapeError);
  RotaryConfig config;
  config.max_positions = 8;
  const std::string rule =
      "[rotary] positions must be below max_positions=8; got 8 in positions=i32[2]; try a shorter sequence, "
      "or a greater max_positions with a factor that stretches what was trained";
  CHECK_NOTHROW(rotary_angles(config, 4, 6, 2, DType::f32, Device::cpu()));
  CHECK_NOTHROW(rotary_angles(config, 4, integers({6, 7}, {2}), DType::f32));
  CHECK_THROWS_WITH_AS(rotary_angles(config, 4, 7, 2, DType::f32, Device::cpu()), rule.c_str(), ShapeError);
  CHECK_THROWS_WITH_AS(rotary_angles(config, 4, integers({7, 8}, {2}), DType::f32), rule.c_str(), ShapeError);
}
