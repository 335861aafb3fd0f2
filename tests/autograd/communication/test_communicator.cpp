#include <doctest/doctest.h>
#include <tapeformer/autograd/communication/communicator.h>
#include <tapeformer/tests/reference/support.h>
#include <tapeformer/tests/reference/thread_communicator.h>

using namespace tapeformer;
using reference::as_ranks;
using Values = std::vector<double>;

TEST_CASE("a process alone has rank 0 of 1, and its operations change nothing") {
  const auto alone = communicator_alone();
  CHECK(alone->rank() == 0);
  CHECK(alone->size() == 1);
  const Tensor x = values({1, 2, 3});
  alone->all_reduce(x).wait();
  alone->reduce_scatter(x).wait();
  alone->all_gather(x).wait();
  alone->broadcast(x).wait();
  CHECK(x.to_vector<double>() == Values{1, 2, 3});
  CHECK(alone->sum({4, 5}) == Values{4, 5});
  CHECK(alone->gather("text") == std::vector<std::string>{"text"});
}

TEST_CASE("numbers and texts of different lengths reach every rank") {
  as_ranks(4, [](Communicator& ranks) {
    CHECK(ranks.sum({1, static_cast<double>(ranks.rank())}) == Values{4, 6});
    const auto texts = ranks.gather(std::string(static_cast<std::size_t>(ranks.rank()), 'x'));
    CHECK(texts == std::vector<std::string>{"", "x", "xx", "xxx"});
    CHECK(ranks.gather("") == std::vector<std::string>(4));
  });
}

TEST_CASE("arguments that do not fit are refused before anything is sent") {
  as_ranks(2, [](Communicator& ranks) {
    CHECK_THROWS_WITH_AS(ranks.all_gather(values({1, 2, 3})),
                         "[all_gather] the elements must divide into equal shares for 2 ranks; got x=f64[3]; "
                         "try padding",
                         ShapeError);
    CHECK_THROWS_WITH_AS(ranks.all_reduce(Tensor::zeros({2}, DType::i32)),
                         "[all_reduce] a sum needs f32, f64 or bf16; got x=i32[2]", DTypeError);
  });
}
