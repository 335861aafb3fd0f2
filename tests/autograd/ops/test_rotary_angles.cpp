#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/ops/rotary_case.h>

using namespace tapeformer;

TEST_CASE("given angles rotate alike, in place where nothing else holds x") {
  Generator random(test_seed(7));
  const Index heads = 3, D = 8, N = heads * D + 8;
  for (const RotaryLayout layout : kLayouts) {
    for (const Index width : {0, 4}) {
      RotaryConfig config = with(50, layout);
      config.width = width;
      const Tensor x = random_normal({2, 5, N}, random), at = positions_from(3, 5);
      const Tensor expected = packed_rotary(x, heads, D, rotary_angles(config, D, at, x.dtype()));
      const RotaryAngles angles = rotary_angles(config, D, 3, 5, x.dtype(), x.device());
      CHECK(angles.table.shape() == Shape{5, 2, (width > 0 ? width : D) / 2});
      const Tensor before = x.clone();
      CHECK(absolute_error(packed_rotary(x, heads, D, angles), expected) == 0);
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
      const Tensor dx = tape.gradients(sum(power * power), {x})[0];
      CHECK_BELOW(relative_error(dx, 2 * exp(x) * exp(x)), 1e-12);
    }
  }
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
                      const Tensor turned = rotary(2 * reshape(x, {2, 5, 6, 4}), angles);
                      return turned * turned;
                    },
                    {{"x", x}});
}

TEST_CASE("angles of other tokens, of too many pairs and beyond the limit are refused") {
  const Tensor x = Tensor::zeros({2, 3, 1, 4});
  const RotaryAngles longer = rotary_angles({}, 4, 0, 4, x.dtype(), x.device());
  CHECK(message_of<ShapeError>([&] { rotary(x, longer); }) ==
        "[rotary] the angles must be those of x's tokens, with no more pairs than a head has; got "
        "x=f32[2,3,1,4], head_width=4, angles=f32[4,2,2]");
  CHECK(message_of<ShapeError>([&] {
          packed_rotary(Tensor::zeros({2, 4, 6}), 2, 2, longer);
        }).find("[packed_rotary] the angles must be") == 0);
  RotaryConfig config;
  config.max_positions = 8;
  CHECK_NOTHROW(rotary_angles(config, 4, 6, 2, DType::f32, Device::cpu()));
  CHECK_THROWS_WITH_AS(rotary_angles(config, 4, 7, 2, DType::f32, Device::cpu()),
                       doctest::Contains("max_positions=8; got 8 in positions=i32[2]"), ShapeError);
}
