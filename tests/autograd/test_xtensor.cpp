#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/xtensor.h>

#include <xtensor/xfixed.hpp>
#include <xtensor/xmanipulation.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xview.hpp>

using namespace tapeformer;

TEST_CASE("an array becomes a tensor on the same memory, in every type") {
  xt::xarray<float> array{{1, 2, 3}, {4, 5, 6}};
  const float* memory = array.data();
  const Tensor x = from_xtensor(std::move(array));
  CHECK(x.describe() == "f32[2,3]");
  if (!x.device().is_cuda()) CHECK(x.data<float>() == memory);
  CHECK(x.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(from_xtensor(xt::xarray<double>{0.5}).describe() == "f64[1]");
  CHECK(from_xtensor(xt::xarray<std::int32_t>{7, 8}).at(1) == 8);
  CHECK(from_xtensor(xt::xarray<bool>{true, false}).to_vector<bool>() == std::vector<bool>{true, false});
  CHECK(from_xtensor(xt::xarray<float>(2.5f)).item() == 2.5);
  CHECK(from_xtensor(xt::xarray<float>::from_shape({0, 3})).shape() == Shape{0, 3});
}

TEST_CASE("expressions, views and arrays that are used later are copied, whatever their layout") {
  const xt::xarray<float> array{{1, 2, 3}, {4, 5, 6}};
  CHECK(from_xtensor(array).describe() == "f32[2,3]");
  CHECK(from_xtensor(array * 2.f + 1.f).to_vector<float>() == std::vector<float>{3, 5, 7, 9, 11, 13});
  CHECK(from_xtensor(xt::transpose(array)).to_vector<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK(from_xtensor(xt::view(array, xt::all(), xt::range(1, 3))).describe() == "f32[2,2]");
  CHECK(from_xtensor(array > 3.f).to_vector<bool>() ==
        std::vector<bool>{false, false, false, true, true, true});
  const xt::xarray<double, xt::layout_type::column_major> columns{{1, 2}, {3, 4}};
  CHECK(from_xtensor(columns).to_vector<double>() == std::vector<double>{1, 2, 3, 4});
  CHECK(from_xtensor(xt::xtensor_fixed<double, xt::xshape<2>>{5, 6}).at(1) == 6);
}

TEST_CASE("the adopted memory lives as long as a handle on it") {
  Tensor x = from_xtensor(xt::xarray<double>{{1, 2}, {3, 4}});
  const Tensor y = x.alias({4});
  x = Tensor();
  CHECK(y.to_vector<double>() == std::vector<double>{1, 2, 3, 4});
}

TEST_CASE("a tensor is an array on the same memory") {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3}).to(Device::cpu());
  auto array = as_xtensor<float>(x);
  CHECK(array.data() == x.data<float>());
  CHECK(array.dimension() == 2);
  CHECK(array(1, 0) == 4);
  array(1, 2) = 60;
  CHECK(x.at(5) == 60);
  const xt::xarray<float> columns = xt::sum(array, {0});
  CHECK(columns == xt::xarray<float>{5, 7, 63});
  as_xtensor<float>(x) = array * 2;
  CHECK(x.at(0) == 2);
  CHECK(as_xtensor<float>(Tensor::scalar(3))() == 3);
  CHECK(as_xtensor<float>(Tensor::zeros({0, 2})).size() == 0);
}

TEST_CASE("the array keeps the tensor's memory alive") {
  auto array = as_xtensor<double>(Tensor::from<double>({1, 2, 3}));
  const Tensor other = Tensor::full({3}, 9, DType::f64);  // would get the freed block
  CHECK(array(0) == 1);
  CHECK(array(2) == 3);
  CHECK(array.data() != other.data<double>());
}

TEST_CASE("another element type is refused") {
  CHECK_THROWS_WITH_AS(as_xtensor<double>(Tensor::zeros({2})),
                       "[data] the element type must be f64; got x=f32[2]; try to()", DTypeError);
}
