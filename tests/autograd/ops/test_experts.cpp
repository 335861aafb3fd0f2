#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/experts.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/ops/op_case.h>
#include <tapeformer/tests/reference/rounding.h>

#include <algorithm>
#include <numeric>

using namespace tapeformer;

namespace {

/// [N]: starts of experts with `rows` each.
Tensor starts_of(const std::vector<std::int32_t>& rows) {
  std::vector<std::int32_t> starts(rows.size() + 1, 0);
  std::partial_sum(rows.begin(), rows.end(), starts.begin() + 1);
  return integers(starts, {static_cast<Index>(starts.size())});
}

/// Each expert's rows in a product of their own.
Tensor apart(const Tensor& x, const Tensor& weight, const std::vector<std::int32_t>& rows) {
  TensorList parts;
  Index first = 0;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    const Tensor matrix =
        reshape(slice(weight, 0, static_cast<Index>(e), 1), {weight.size(1), weight.size(2)});
    parts.push_back(matmul(slice(x, 0, first, rows[e]), transposed(matrix)));
    first += rows[e];
  }
  return concat(parts, 0);
}

}  // namespace

TEST_CASE("the largest scores choose, the first of equal ones first, and rows are sorted by expert") {
  const Tensor scores = values({0.1, 0.7, 0.2, 0.7, /**/ 0.5, 0.5, 0.5, 0.5, /**/ 4, 1, 3, 2}, {3, 4});
  const ExpertChoice choice = choose_experts(scores, 2);
  CHECK(integers_of(choice.places) == std::vector<std::int32_t>{1, 3, 4, 5, 8, 10});
  CHECK(integers_of(choice.rows) == std::vector<std::int32_t>{2, 5, 0, 3, 1, 4});
  CHECK(integers_of(choice.tokens) == std::vector<std::int32_t>{1, 2, 0, 1, 2, 0});
  CHECK(integers_of(choice.starts) == std::vector<std::int32_t>{0, 2, 4, 5, 6});
  CHECK_BELOW(absolute_error(choice.shares, values({2.0 / 6, 2.0 / 6, 1.0 / 6, 1.0 / 6}, {4})),
              kFewRoundings);
}

TEST_CASE("in a few groups the largest scores choose as among all others") {
  Generator random(test_seed(4));
  const Index groups = 4, width = 3;
  const Tensor scores = random_normal({20, groups * width}, random);
  for (const bool sums_two : {false, true}) {
    for (const Index active : {1, 2, 4}) {
      Tensor kept = scores.clone();
      for (Index token = 0; token < 20; ++token) {
        double* const own = kept.data<double>() + token * groups * width;
        std::vector<std::pair<double, Index>> order;
        for (Index group = 0; group < groups; ++group) {
          std::vector<double> sorted(own + group * width, own + (group + 1) * width);
          std::sort(sorted.rbegin(), sorted.rend());
          order.emplace_back(-sorted[0] - (sums_two ? sorted[1] : 0), group);
        }
        std::sort(order.begin(), order.end());
        for (Index i = active; i < groups; ++i)
          std::fill_n(own + order[static_cast<std::size_t>(i)].second * width, width, -kInfinity);
      }
      CHECK(integers_of(choose_experts(scores, 3, {groups, active, sums_two}).places) ==
            integers_of(choose_experts(kept, 3).places));
    }
  }
}

TEST_CASE("NaN and infinities leave each token its number of different experts") {
  const Tensor scores =
      values({kNan, 1, kNan, 2, /**/ kNan, kNan, kNan, kNan, /**/ -kInfinity, kInfinity, 0, kNan}, {3, 4});
  for (const Index active : {1, 3, 4}) {
    const ExpertChoice choice = choose_experts(scores, active);
    std::vector<std::int32_t> places = integers_of(choice.places);
    for (Index token = 0; token < 3; ++token) {
      const auto first = places.begin() + token * active;
      std::sort(first, first + active);
      CHECK(std::adjacent_find(first, first + active) == first + active);
      CHECK(*first >= 4 * token);
      CHECK(*(first + active - 1) < 4 * (token + 1));
    }
  }
}

TEST_CASE("each row and its gradients are those of a product with its expert's matrix alone") {
  Generator random(test_seed(2));
  const std::vector<std::int32_t> loads[] = {{3}, {0, 5, 0, 1}, {31, 33, 0, 32, 1}, {130, 70}, {0, 0}};
  for (const auto& rows : loads) {
    for (const Index width : {1, 33}) {
      CAPTURE(width);
      const auto experts = static_cast<Index>(rows.size());
      const Index count = std::accumulate(rows.begin(), rows.end(), Index{0});
      const std::vector<Tensor> in{random_normal({count, width}, random),
                                   random_normal({experts, 7, width}, random)};
      const Tensor dy = random_normal({count, 7}, random), starts = starts_of(rows);
      const Op op = [&](const auto& x) { return expert_linear(x[0], x[1], starts); };
      check_op(op, in, dy, run_op([&](const auto& x) { return apart(x[0], x[1], rows); }, in, dy));
    }
  }
}

TEST_CASE("gradients of both orders") {
  Generator random(test_seed(3));
  const Tensor x = random_normal({5, 3}, random), weight = random_normal({3, 2, 3}, random),
               starts = starts_of({2, 0, 3});
  check_both_orders("expert_linear", [&] { return expert_linear(x, weight, starts); },
                    {{"x", x}, {"weight", weight}});
}

TEST_CASE("gradients of the third order are those of products with each matrix alone") {
  Generator random(test_seed(5));
  const std::vector<std::int32_t> rows{2, 0, 3};
  const Tensor x = random_normal({5, 3}, random), weight = random_normal({3, 2, 3}, random),
               dy = random_normal({5, 2}, random), starts = starts_of(rows);
  const auto third = [&](const std::function<Tensor()>& product) {
    Tape tape;
    tape.watch(x);
    tape.watch(weight);
    const Tensor first = tape.gradients(product(), {weight}, dy, true)[0];
    const Tensor second = tape.gradients(sum(first * first), {x}, {}, true)[0];
    return tape.gradients(sum(second * second), {x})[0];
  };
  CHECK_BELOW(relative_error(third([&] { return expert_linear(x, weight, starts); }),
                             third([&] { return apart(x, weight, rows); })),
              1e-13);
}

TEST_CASE("shapes and starts that do not fit are refused") {
  const Tensor x = Tensor::zeros({4, 3}), weight = Tensor::zeros({2, 5, 3});
  CHECK_THROWS_WITH_AS(expert_linear(x, weight, integers({0, 4}, {2})),
                       "[expert_linear] x [M, In], weight [E, Out, In] and starts [E + 1] must fit; got "
                       "x=f32[4,3], weight=f32[2,5,3], starts=i32[2]",
                       ShapeError);
  CHECK(message_of<DTypeError>([&] { expert_linear(x, weight, Tensor::zeros({3})); }) ==
        "[expert_linear] indices must be i32; got starts=f32[3]; try to(DType::i32)");
  CHECK(message_of<ShapeError>([&] { choose_experts(x, 4); }) ==
        "[choose_experts] scores must be [N, E], of which 1 to E are chosen; got scores=f32[4,3], active=4");
  CHECK_THROWS_WITH_AS(choose_experts(x, 2, {3, 1}),
                       "[choose_experts] groups must divide the experts, and those of a token must have "
                       "enough; got scores=f32[4,3], active=2, groups=3, active_groups=1",
                       ShapeError);
  if (default_device().is_cuda()) return;  // where starts are not read
  for (const std::int32_t end : {3, 5})
    CHECK(message_of<ShapeError>([&] {
            expert_linear(x, weight, integers({0, 2, end}, {3}));
          }) == "[expert_linear] starts must rise from 0 to M; got start=" + std::to_string(end) +
                    ", position=2, x=f32[4,3]; try those of choose_experts()");
}
