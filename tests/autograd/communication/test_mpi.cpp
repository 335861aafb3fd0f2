#include <doctest/doctest.h>
#include <tapeformer/autograd/communication/mpi.h>

#include <ostream>
#include <string>

using namespace tapeformer;

// Most cases need other ranks: tests/mpirun.sh -n 3 tapeformer_tests --source-file=*/test_mpi.cpp.
#define SEVERAL_RANKS *doctest::skip(launched_rank().size == 1)

TEST_CASE("a process that no launcher has started is alone" * doctest::skip(launched_rank().size > 1)) {
  CHECK(join_launch()->size() == 1);
  CHECK(join_launch() == join_launch());
  CHECK(name_of_this_rank().empty());
  leave_launch();
}

TEST_CASE("operations that were started together end in any order of waiting" SEVERAL_RANKS) {
  Communicator& ranks = *join_launch();
  const double own = ranks.rank() + 1, all = ranks.size() * (ranks.size() + 1) / 2;
  const Tensor large = Tensor::full({1 << 20}, own), small = Tensor::full({3}, own, DType::f64);
  Communication first = ranks.all_reduce(large), second = ranks.all_reduce(small);
  second.wait();
  first.wait();
  CHECK(small.at(2) == all);
  CHECK(large.at((1 << 20) - 1) == all);
  CHECK(ranks.time().busy > 0);
  CHECK(ranks.time().waited > 0);
  CHECK(name_of_this_rank().rfind("rank " + std::to_string(ranks.rank()) + " on ", 0) == 0);
}
