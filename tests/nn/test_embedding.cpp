#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/embedding.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/check_gradients.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_CASE("every id becomes its row, and a row's gradient is the sum over its places") {
  Generator random(test_seed(1));
  Embedding embedding({3, 2, 1}, random);
  embedding.weight().set_value(Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2}));
  Tape tape;
  const Tensor y = embedding(ids_of({2, 0, 2, 2}, {2, 2}));
  CHECK(y.shape() == Shape{2, 2, 2});
  CHECK(y.to_vector<float>() == std::vector<float>{5, 6, 1, 2, 5, 6, 5, 6});
  tape.backward(y, Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2}));
  CHECK(embedding.weight().gradient().to_vector<float>() == std::vector<float>{3, 4, 0, 0, 13, 16});
}

TEST_CASE("rows start normal with the requested standard deviation") {
  Generator random(test_seed(1));
  Embedding embedding({500, 40, 0.25}, random);
  double squares = 0;
  const Tensor table = embedding.weight().value();
  for (Index i = 0; i < table.elements(); ++i) squares += table.at(i) * table.at(i);
  CHECK_BELOW(deviation(std::sqrt(squares / 20000), 0.25), 0.02);
  CHECK(embedding.parameter_count() == 20000);
}

TEST_CASE("an id outside the vocabulary is refused with its value and position") {
  Generator random(test_seed(1));
  Embedding embedding({3, 2, 1}, random);
  const std::string large = message_of<ShapeError>([&] { embedding(ids_of({0, 1, 2, 3}, {2, 2})); });
  CHECK(large.find("[0, 3)") != std::string::npos);
  CHECK(large.find("got 3 at [1,1]") != std::string::npos);
  const std::string negative = message_of<ShapeError>([&] { embedding(ids_of({0, -1}, {1, 2})); });
  CHECK(negative.find("got -1 at [0,1]") != std::string::npos);
}
