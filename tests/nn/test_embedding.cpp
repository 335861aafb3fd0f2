#include <tapeformer/nn/embedding.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/nn/normal_case.h>

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
  check_normal(embedding.weight().value(), 0.25);
  CHECK(embedding.parameter_count() == 20000);
}
