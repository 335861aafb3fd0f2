#include <doctest/doctest.h>
#include <tapeformer/autograd/parameter.h>
#include <tapeformer/tests/reference/support.h>

using namespace tapeformer;

TEST_CASE("tensors are made from values, in row-major order") {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(x.shape() == Shape{2, 3});
  CHECK(x.dtype() == DType::f32);
  CHECK(x.elements() == 6);
  CHECK(x.bytes() == 24);
  CHECK(x.size(-1) == 3);
  CHECK(x.at(3) == 4);
  CHECK(x.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(Tensor::from<double>({1.5, 2.5}).shape() == Shape{2});
  CHECK(Tensor::from<std::int32_t>({7}).dtype() == DType::i32);
  CHECK(Tensor::from<bool>({true, false, true}).to_vector<bool>() == std::vector<bool>{true, false, true});
}

TEST_CASE("tensors are filled with a constant of any type") {
  CHECK(Tensor::zeros({2, 2}).to_vector<float>() == std::vector<float>(4, 0));
  CHECK(Tensor::full({3}, 0.5, DType::f64).to_vector<double>() == std::vector<double>(3, 0.5));
  CHECK(Tensor::full({2}, 7, DType::i32).to_vector<std::int32_t>() == std::vector<std::int32_t>(2, 7));
  CHECK(Tensor::full({2}, 1, DType::boolean).to_vector<bool>() == std::vector<bool>(2, true));
  CHECK(Tensor::scalar(3.5).item() == 3.5);
  CHECK(Tensor::scalar(3.5).rank() == 0);
  CHECK(Tensor::zeros({0, 3}).to_vector<float>().empty());
}

TEST_CASE("a copy is the same tensor; a clone is not; detach and alias share the elements") {
  const Tensor x = values({1, 2, 3, 4}, {2, 2});
  const Tensor copy = x, clone = x.clone(), detached = x.detach(), alias = x.alias({4});
  x.data<double>()[0] = 9;
  CHECK(copy.at(0) == 9);
  CHECK(clone.at(0) == 1);
  CHECK(detached.at(0) == 9);
  CHECK(alias.at(0) == 9);
  CHECK(alias.shape() == Shape{4});
  CHECK(copy.state() == x.state());
  CHECK(detached.state() != x.state());
}

TEST_CASE("sole ownership counts handles and tensors on the same elements") {
  const Tensor x = values({1, 2});
  CHECK(x.is_sole_owner());
  {
    const Tensor copy = x;
    CHECK(!x.is_sole_owner());
  }
  {
    const Tensor alias = x.detach();
    CHECK(!x.is_sole_owner());
  }
  CHECK(x.is_sole_owner());
  CHECK(!Tensor().is_sole_owner());
}

TEST_CASE("values convert between types") {
  const Tensor x = values({-1.5, 0, 2.75});
  CHECK(x.to(DType::f32).to_vector<float>() == std::vector<float>{-1.5f, 0, 2.75f});
  CHECK(x.to(DType::i32).to_vector<std::int32_t>() == std::vector<std::int32_t>{-1, 0, 2});
  CHECK(x.to(DType::boolean).to_vector<bool>() == std::vector<bool>{true, false, true});
  CHECK(Tensor::from<bool>({true, false}).to(DType::f64).to_vector<double>() == std::vector<double>{1, 0});
  CHECK(x.to(DType::f64).data<double>() == x.data<double>());
  CHECK(values({0.1}).to(DType::f32).to(DType::f64).at(0) == static_cast<double>(0.1f));
}

TEST_CASE("values are copied between tensors of one shape and type") {
  const Tensor x = values({1, 2}), y = values({3, 4});
  x.copy_from(y);
  y.data<double>()[0] = 7;
  CHECK(x.to_vector<double>() == std::vector<double>{3, 4});
  CHECK_THROWS_WITH_AS(x.copy_from(values({1, 2, 3})),
                       "[copy] shapes and types must match; got to=f64[2], from=f64[3]", ShapeError);
  CHECK(message_of<ShapeError>([&] { x.copy_from(Tensor::zeros({2})); }) ==
        "[copy] shapes and types must match; got to=f64[2], from=f32[2]");
}

TEST_CASE("foreign memory is used as it is and given back") {
  float elements[2] = {1, 2};
  bool released = false;
  {
    const Tensor x = Tensor::adopt(
        Handle<Storage>(new Storage(elements, sizeof elements, [&] { released = true; })), {2}, DType::f32);
    x.data<float>()[1] = 5;
    CHECK(!released);
  }
  CHECK(released);
  CHECK(elements[1] == 5);
}

TEST_CASE("misuse is refused with the tensor's type and shape") {
  const Tensor x = values({1, 2, 3});
  CHECK(message_of<DTypeError>([&] { x.data<float>(); }) ==
        "[data] the element type must be f32; got x=f64[3]; try to()");
  CHECK(message_of<ShapeError>([&] { x.item(); }) == "[item] the tensor must have one element; got x=f64[3]");
  CHECK_THROWS_WITH_AS(x.at(3), "[at] position must be inside the tensor; got 3 of x=f64[3]", ShapeError);
  CHECK(message_of<ShapeError>([&] {
          x.alias({2, 2});
        }) == "[reshape] the number of elements must stay the same; got x=f64[3], shape=[2,2]");
  CHECK_THROWS_WITH_AS(Tensor::from<float>({1, 2}, {3}),
                       "[from] the number of values must be the shape's; got 2 values for [3]", ShapeError);
  CHECK_THROWS_AS(Tensor::from<float>({1, 2}, {Index{1} << 50}), ShapeError);
  CHECK(message_of<ShapeError>([] { Tensor().shape(); }) ==
        "[tensor] the tensor is undefined; try Tensor::zeros or another constructor first");
  CHECK_THROWS_AS(Tensor().data<float>(), ShapeError);
  CHECK_THROWS_AS(Tensor().address<float>(), ShapeError);
  CHECK(Tensor().describe() == "undefined");
}

TEST_CASE("copies of a parameter are the same parameter") {
  Parameter a(values({1, 2}));
  const Parameter tied = a;
  CHECK(tied == a);
  CHECK(!(Parameter(values({1, 2})) == a));
  a.set_value(Tensor::zeros({5}));
  CHECK(tied.value().shape() == Shape{5});
  a.set_trainable(false);
  CHECK(!tied.trainable());
}
