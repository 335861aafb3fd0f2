#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/tests/autograd/ops/op_case.h>

#include <limits>

using namespace tapeformer;

namespace {

OpResult oracle(const Tensor& table, const Tensor& ids, const Tensor& dy) {
  const Index width = table.size(1);
  Shape shape = ids.shape();
  shape.append(width);
  OpResult result{Tensor::empty(shape, DType::f64), {Tensor::zeros(table.shape(), DType::f64)}};
  for (Index i = 0; i < ids.elements(); ++i) {
    const auto id = static_cast<Index>(ids.at(i));
    for (Index k = 0; k < width; ++k) {
      result.y.data<double>()[i * width + k] = table.at(id * width + k);
      result.gradients[0].data<double>()[id * width + k] += dy.at(i * width + k);
    }
  }
  return result;
}

}  // namespace

TEST_CASE("rows worked by hand: an id that comes twice gathers both gradients") {
  const Tensor table = values({1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor ids = integers({2, 0, 2}, {3});
  const OpResult got = run_op([&](const auto& in) { return embedding(in[0], ids); }, {table},
                              values({1, 2, 10, 20, 100, 200}, {3, 2}));
  CHECK(got.y.to_vector<double>() == std::vector<double>{5, 6, 1, 2, 5, 6});
  CHECK(got.gradients[0].to_vector<double>() == std::vector<double>{10, 20, 0, 0, 101, 202});
}

TEST_CASE("lookups equal the definition at every width, on one thread and on several") {
  Generator random(test_seed(1));
  for (const Index width : {1, 15, 16, 17, 31, 32, 33, 257, 1100}) {
    for (const Index count : {1, 500}) {
      CAPTURE(width);
      const Tensor table = random_normal({11, width}, random),
                   seed = random_normal({2, count, width}, random);
      const Tensor ids = random_ids({2, count}, 11, random);
      check_op([&](const auto& in) { return embedding(in[0], ids); }, {table}, seed,
               oracle(table, ids, seed));
    }
  }
}

TEST_CASE("nothing in, nothing out, and a gradient of zeros") {
  const OpResult got = run_op(
      [](const auto& in) {
        return embedding(in[0], Tensor::empty({0, 2}, DType::i32));
      },
      {values({1, 2}, {2, 1})}, Tensor::zeros({0, 2, 1}, DType::f64));
  CHECK(got.y.shape() == Shape{0, 2, 1});
  CHECK(got.gradients[0].to_vector<double>() == std::vector<double>{0, 0});
}

TEST_CASE("gradients of both orders") {
  Generator random(test_seed(3));
  const Tensor table = random_normal({7, 3}, random), ids = random_ids({2, 5}, 7, random);
  check_both_orders("embedding", [&] { return pow(embedding(table, ids), 2); }, {{"table", table}});
}

TEST_CASE("golden values") {
  check_golden(Golden("ops"), "embedding", {"table", "ids"},
               [](const auto& in) { return embedding(in[0], in[1]); });
}

TEST_CASE("an id outside the table is refused with its place") {
  const Tensor table = Tensor::zeros({10, 2});
  CHECK_THROWS_WITH_AS(embedding(table, integers({1, 2, 3, 4, 10, 5}, {2, 3})),
                       "[embedding] ids must be in [0, 10); got 10 at [1,1] of ids=i32[2,3]", ShapeError);
  CHECK(message_of<ShapeError>([&] { embedding(table, integers({-1}, {1})); }) ==
        "[embedding] ids must be in [0, 10); got -1 at [0] of ids=i32[1]");
  CHECK(message_of<ShapeError>([&] { embedding(Tensor::zeros({2}), integers({1}, {1})); }) ==
        "[embedding] the table must be [V, C]; got table=f32[2]");
  CHECK(message_of<DTypeError>([&] { embedding(table, Tensor::zeros({2})); }) ==
        "[embedding] indices must be i32; got ids=f32[2]; try to(DType::i32)");
}

TEST_CASE("picked rows are copies that keep their bits in every type, and no tape hears of them") {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max(), kLeast = -kMost - 1;
  const Tensor whole = integers({kMost, kLeast, 16777217, -1, 5, 6}, {3, 2});
  CHECK(picked_rows(whole, {2, 0, 2}).to_vector<std::int32_t>() ==
        std::vector<std::int32_t>{5, 6, kMost, kLeast, 5, 6});
  CHECK(picked_rows(whole, {}).shape() == Shape{0, 2});
  CHECK(message_of<ShapeError>([&] { picked_rows(whole, {3}); }) ==
        "[picked_rows] rows must exist; got x=i32[3,2], row=3");
  const Tensor flags = picked_rows(booleans({1, 0, 0, 1, 1, 1}, {3, 1, 2}), {2, 0});
  CHECK(flags.shape() == Shape{2, 1, 2});
  CHECK(flags.to_vector<bool>() == std::vector<bool>{true, true, true, false});
  Generator random(test_seed(4));
  Tape tape;
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor x = random_normal({4, 3, 5}, random, type);
    tape.watch(x);
    const Tensor twice = picked_rows(x, {3, 3});
    for (Index i = 0; i < 30; ++i) CHECK(twice.at(i) == x.at(45 + i % 15));
    CHECK_FALSE(tape.tracks(twice));
  }
}
