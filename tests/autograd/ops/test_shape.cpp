#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/ops/op_case.h>
#include <tapeformer/tests/reference/rounding.h>

#include <algorithm>
#include <limits>

using namespace tapeformer;

namespace {

Tensor counted(const Shape& shape, DType type = DType::f64) {
  return filled(shape, [](Index i) { return static_cast<double>(i); }).to(type);
}

/// The position in row-major order of the element at `indices`.
Index position_of(const Shape& shape, const std::vector<Index>& indices) {
  Index position = 0;
  for (int axis = 0; axis < shape.rank(); ++axis)
    position = position * shape[axis] + indices[static_cast<std::size_t>(axis)];
  return position;
}
std::vector<Index> indices_of(const Shape& shape, Index position) {
  std::vector<Index> indices(static_cast<std::size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    indices[static_cast<std::size_t>(axis)] = position % shape[axis];
    position /= shape[axis];
  }
  return indices;
}

/// y[indices] = x[source(indices)].
template <class Source>
Tensor picked(const Tensor& x, const Shape& shape, const Source& source) {
  return filled(shape, [&](Index i) { return x.at(position_of(x.shape(), source(indices_of(shape, i)))); });
}

/// Shape operations are linear, so they are checked inside a function that is not.
template <class F>
void check(const char* name, const F& function, const std::vector<std::pair<std::string, Tensor>>& inputs) {
  check_both_orders(
      name, [&] { return function() * function(); }, inputs);
}

}  // namespace

TEST_CASE("reshape keeps the elements and shares their memory") {
  const Tensor x = counted({2, 3});
  const Tensor y = reshape(x, {3, 2});
  CHECK(y.shape() == Shape{3, 2});
  CHECK(y.data<double>() == x.data<double>());
  CHECK(reshape(x, {-1}).shape() == Shape{6});
  CHECK(reshape(x, {3, -1}).shape() == Shape{3, 2});
  CHECK(reshape(x, {1, -1, 6}).shape() == Shape{1, 1, 6});
  CHECK(reshape(Tensor::zeros({0, 3}), {-1, 3}).shape() == Shape{0, 3});
  CHECK(reshape(Tensor::scalar(1), {1, 1}).shape() == Shape{1, 1});
  CHECK(reshape(Tensor::zeros({2, 2}, DType::i32), {4}).dtype() == DType::i32);
}

TEST_CASE("permute moves axes") {
  CHECK(permute(values({1, 2, 3, 4, 5, 6}, {2, 3}), {1, 0}).to_vector<double>() ==
        std::vector<double>{1, 4, 2, 5, 3, 6});
  CHECK(transpose(counted({2, 3})).shape() == Shape{3, 2});
  for (const Shape& shape : {Shape{2, 3, 5, 7}, Shape{1, 31, 2, 32}, Shape{33, 1, 2, 3}, Shape{2, 0, 3, 1}}) {
    const Tensor x = counted(shape);
    std::vector<int> order = {0, 1, 2, 3};
    do {
      Shape permuted;
      for (const int axis : order) permuted.append(shape[axis]);
      const Tensor expected = picked(x, permuted, [&](const std::vector<Index>& at) {
        std::vector<Index> from(4);
        for (std::size_t i = 0; i < 4; ++i) from[static_cast<std::size_t>(order[i])] = at[i];
        return from;
      });
      CHECK(relative_error(permute(x, Axes(order.begin(), order.end())), expected) == 0);
    } while (std::next_permutation(order.begin(), order.end()));
  }
  CHECK(relative_error(permute(permute(counted({257, 129, 3}), {2, 0, 1}), {1, 2, 0}),
                       counted({257, 129, 3})) == 0);
  CHECK(permute(counted({2, 3}, DType::f32), {-1, 0}).shape() == Shape{3, 2});
}

TEST_CASE("broadcast_to repeats axes of size one and adds leading axes") {
  CHECK(broadcast_to(values({1, 2}, {2, 1}), {2, 3}).to_vector<double>() ==
        std::vector<double>{1, 1, 1, 2, 2, 2});
  const Shape shape{2, 3, 4};
  for (const Shape& from : {Shape{}, Shape{4}, Shape{3, 1}, Shape{2, 1, 4}, Shape{1, 1, 1}, shape}) {
    const Tensor x = counted(from);
    CHECK(relative_error(broadcast_to(x, shape),
                         filled(shape, [&](Index i) { return broadcast_at(x, shape, i); })) == 0);
  }
  CHECK(broadcast_to(values({1}), {0, 1}).shape() == Shape{0, 1});
}

TEST_CASE("slices, pads, concatenations and splits fit each other along every axis") {
  for (const DType type : {DType::f64, DType::f32}) {
    const Tensor x = counted({3, 5, 7}, type);
    for (const int axis : {0, 1, 2, -1}) {
      const Index size = x.size(axis);
      const auto along = static_cast<std::size_t>(axis < 0 ? 2 : axis);
      Shape shape = x.shape();
      shape.set(axis, size - 2);
      const Tensor part = slice(x, axis, 1, size - 2);
      CHECK(relative_error(part, picked(x, shape, [&](std::vector<Index> at) {
                             at[along] += 1;
                             return at;
                           })) == 0);
      const Tensor padded = pad(part, axis, 1, size);
      CHECK(relative_error(padded, filled(x.shape(), [&](Index i) {
                             const Index at = indices_of(x.shape(), i)[along];
                             return at >= 1 && at < size - 1 ? x.at(i) : 0;
                           })) == 0);
      const TensorList parts = split(x, axis, {1, 0, size - 1});
      CHECK(parts.size() == 3);
      CHECK(parts[1].size(axis) == 0);
      CHECK(relative_error(parts[2], slice(x, axis, 1, size - 1)) == 0);
      CHECK(relative_error(concat(parts, axis), x) == 0);
      CHECK(relative_error(concat({parts[2], parts[0]}, axis),
                           concat({slice(x, axis, 1, size - 1), slice(x, axis, 0, 1)}, axis)) == 0);
    }
  }
  CHECK(concat({values({1, 2}), values({3})}, 0).to_vector<double>() == std::vector<double>{1, 2, 3});
  CHECK(concat({values({1, 2})}, 0).to_vector<double>() == std::vector<double>{1, 2});
}

TEST_CASE("gather picks along every axis, and scatter_add is its transpose") {
  CHECK(gather(values({1, 2, 3, 4}, {2, 2}), 1, Tensor::from<std::int32_t>({1, 1, 0, 0, 1, 0}, {2, 3}))
            .to_vector<double>() == std::vector<double>{2, 2, 1, 3, 4, 3});
  CHECK(scatter_add(values({1, 2, 3}), 0, Tensor::from<std::int32_t>({2, 0, 2}), 4).to_vector<double>() ==
        std::vector<double>{2, 0, 4, 0});
  Generator random(test_seed(1));
  const Tensor x = random_normal({3, 5, 7}, random);
  for (const int axis : {0, 1, -1}) {
    for (const Index count : {0, 1, 31, 32, 33, 257}) {
      Shape shape = x.shape();
      shape.set(axis, count);
      const auto along = static_cast<std::size_t>(axis < 0 ? 2 : axis);
      const Tensor index = random_ids(shape, x.size(axis), random), picks = gather(x, axis, index);
      CHECK(relative_error(picks, picked(x, shape, [&](std::vector<Index> at) {
                             at[along] = static_cast<Index>(index.at(position_of(shape, at)));
                             return at;
                           })) == 0);
      const Tensor expected = Tensor::zeros(x.shape(), DType::f64);
      for (Index i = 0; i < picks.elements(); ++i) {
        std::vector<Index> at = indices_of(shape, i);
        at[along] = static_cast<Index>(index.at(i));
        expected.data<double>()[position_of(x.shape(), at)] += picks.at(i);
      }
      CHECK_BELOW(relative_error(scatter_add(picks, axis, index, x.size(axis)), expected), kFewRoundings);
    }
  }
}

TEST_CASE("shape operations pass the gradient check, and so do their gradients") {
  Generator random(test_seed(2));
  const Tensor x = random_normal({2, 3, 4}, random), y = random_normal({2, 2, 4}, random);
  check("reshape", [&] { return reshape(x, {4, -1}); }, {{"x", x}});
  check("permute", [&] { return permute(x, {2, 0, 1}); }, {{"x", x}});
  check("transpose", [&] { return transpose(x); }, {{"x", x}});
  check("broadcast_to", [&] { return broadcast_to(reshape(x, {2, 3, 1, 4}), {2, 3, 2, 4}); }, {{"x", x}});
  check("concat", [&] { return concat({x, y, x}, 1); }, {{"x", x}, {"y", y}});
  check("slice", [&] { return slice(x, 1, 1, 2); }, {{"x", x}});
  check("pad", [&] { return pad(x, 1, 2, 6); }, {{"x", x}});
  for (const int axis : {0, 1, 2}) {
    Shape shape = x.shape();
    shape.set(axis, 5);
    const Tensor index = random_ids(shape, x.size(axis), random);
    check("gather", [&] { return gather(x, axis, index); }, {{"x", x}});
    const Tensor wide = random_normal(shape, random);
    check("scatter_add", [&] { return scatter_add(wide, axis, index, x.size(axis)); }, {{"x", wide}});
  }
  const auto rotated = [&] {
    const TensorList parts = split(x, 2, {1, 2, 1});
    return concat({parts[2] * parts[0], parts[1] * parts[0]}, 2);
  };
  check_both_orders("split", rotated, {{"x", x}});
  const auto one_unused = [&] {
    const TensorList parts = split(x, 1, {1, 1, 1});
    return parts[0] * parts[2];
  };
  check_both_orders("split", one_unused, {{"x", x}});
}

TEST_CASE("empty tensors pass through, forward and backward") {
  const Parameter x(Tensor::zeros({0, 3}));
  Tape tape;
  const Tensor y = concat({permute(x, {1, 0}), Tensor::zeros({3, 2})}, 1);
  CHECK(y.shape() == Shape{3, 2});
  tape.backward(y, Tensor::full({3, 2}, 1));
  CHECK(x.gradient().shape() == Shape{0, 3});
}

TEST_CASE("errors name the rule and the shapes") {
  const Tensor x = Tensor::zeros({2, 3});
  const auto refused = [](const std::string& text, const auto& action) {
    CHECK(message_of<ShapeError>(action).rfind(text, 0) == 0);
  };
  const Axes twice{0, 0}, none{0};
  const PooledVector<Index> too_few{1, 1}, negative{4, -1};
  const TensorList unequal{x, Tensor::zeros({3, 3})};
  refused("[reshape] the number of elements must stay the same; got x=f32[2,3], shape=[4]",
          [&] { return reshape(x, Shape{4}); });
  refused("[permute] the order must name every axis once; got x=f32[2,3]", [&] { return permute(x, twice); });
  refused("[permute] the order must name every axis once", [&] { return permute(x, none); });
  refused("[transpose] x must have at least two axes; got x=f32[3]",
          [&] { return transpose(Tensor::zeros({3})); });
  refused("[broadcast_to] x must broadcast to the shape; got x=f32[2,3], shape=[2,1]", [&] {
    return broadcast_to(x, Shape{2, 1});
  });
  refused(
      "[concat] parts must have the same shape except along the axis; got axis=1, first=f32[2,3], "
      "part=f32[3,3]",
      [&] { return concat(unequal, 1); });
  refused("[concat] there must be at least one part", [&] { return concat({}, 0); });
  refused("[slice] the range must be inside the axis; got x=f32[2,3], axis=1, from=2, size=2",
          [&] { return slice(x, 1, 2, 2); });
  constexpr Index kMost = std::numeric_limits<Index>::max();
  for (const auto& [from, size] : {std::pair(kMost, Index{1}), {Index{1}, kMost}})
    refused("[slice] the range must", [&x, from = from, size = size] { return slice(x, 1, from, size); });
  refused("[pad] x must fit", [&] { return pad(x, 1, kMost, 4); });
  refused("[split] sizes must add up to the axis, none below 0; got x=f32[2,3], axis=1, sum of sizes=2",
          [&] { return split(x, 1, too_few); });
  refused("[split] sizes must add up to the axis", [&] { return split(x, 1, negative); });
  refused("[pad] x must fit; got x=f32[2,3], from=2, size=4", [&] { return pad(x, 1, 2, 4); });
  refused("[gather] index must match x except along the axis; got axis=1, x=f32[2,3], index=i32[3,3]", [&] {
    return gather(x, 1, Tensor::zeros({3, 3}, DType::i32));
  });
  for (const int index : {3, -1})
    refused("[gather] indices must be in [0, 3); got " + std::to_string(index) +
                " at element 0 of index=i32[2,1]",
            [&] {
              return gather(x, 1, Tensor::full({2, 1}, index, DType::i32));
            });
  refused("[scatter_add] index must have the shape of x; got x=f32[2,3], index=i32[2,4]", [&] {
    return scatter_add(x, 1, Tensor::zeros({2, 4}, DType::i32), 3);
  });
}

TEST_CASE("gather and the selection of whole rows agree with PyTorch") {
  const Golden golden("ops");
  check_golden(
      golden, "gather", {"x", "index"}, [](const auto& x) { return gather(x[0], 1, x[1]); }, kFewRoundings,
      2e-7);
  const Tensor rows = golden.tensor("index_select", "in.index");
  const Tensor index = filled({3, 4, 7}, [&](Index i) { return rows.at(i / 7 % 4); }).to(DType::i32);
  check_golden(
      golden, "index_select", {"x"}, [&](const auto& x) { return gather(x[0], 1, index); }, kFewRoundings,
      2e-7);
}
