#include <doctest/doctest.h>
#include <tapeformer/autograd/async_readback.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/tests/reference/support.h>

#include <vector>

using namespace tapeformer;

TEST_CASE("it is the tensor's value at the time of the call, whatever came later") {
  for (const DType type : {DType::f64, DType::f32, DType::i32, DType::boolean}) {
    CAPTURE(name_of(type));
    const Tensor x = Tensor::full({1}, 1, type);
    AsyncReadback first(x);
    x.copy_from(Tensor::zeros({1}, type));
    AsyncReadback second(x);
    CHECK(first.item() == 1);
    CHECK(second.item() == 0);
    CHECK(first.item() == 1);
  }
}

TEST_CASE("many may be in flight at once, and some may never be read") {
  std::vector<AsyncReadback> items;
  for (int i = 0; i < 50; ++i) items.emplace_back(Tensor::scalar(i));
  for (int i = 49; i >= 10; --i) CHECK(items[static_cast<std::size_t>(i)].item() == i);
  items.clear();
  CHECK(AsyncReadback(Tensor::scalar(7)).item() == 7);
}

TEST_CASE("a readback without a tensor says so, and a tensor must have one element") {
  CHECK_FALSE(AsyncReadback().defined());
  CHECK(AsyncReadback(Tensor::scalar(7)).defined());
  CHECK(message_of<ShapeError>([] { AsyncReadback(Tensor::zeros({2})); }) ==
        "[item] the tensor must have one element; got x=f32[2]");
}
