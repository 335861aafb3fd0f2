#include <doctest/doctest.h>
#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/autograd/communication/mpi_collectives.h>
#include <tapeformer/tests/reference/support.h>

#include <string>
#include <vector>

using namespace tapeformer;
using Values = std::vector<double>;

// Other ranks are needed: tests/mpirun.sh -n 3 tapeformer_tests --source-file=*/test_mpi_collectives.cpp.
#define SEVERAL_RANKS *doctest::skip(launched_rank().size == 1)

namespace {

/// Element i of rank r: different everywhere, and exact in bf16.
double element(int rank, Index i) { return static_cast<double>((rank + 1) * (1 + i % 7)); }

Tensor own(const Communicator& ranks, Index count, DType type) {
  Values values;
  for (Index i = 0; i < count; ++i) values.push_back(element(ranks.rank(), i));
  return Tensor::from(values).to(type);
}

double sum_of_all(const Communicator& ranks, Index i) {
  double sum = 0;
  for (int rank = 0; rank < ranks.size(); ++rank) sum += element(rank, i);
  return sum;
}

}  // namespace

TEST_CASE("every rank gets the sum, of all types and sizes" SEVERAL_RANKS) {
  Communicator& ranks = *join_launch();
  // Below and above what is gathered whole, and not divisible by the number of ranks.
  for (const Index count : {1, 5, 1000, 20000, 100003}) {
    for (const DType type : {DType::f32, DType::f64, DType::bf16}) {
      const Tensor sum = own(ranks, count, type);
      ranks.all_reduce(sum).wait();
      for (Index i = 0; i < count; i += 1 + count / 50) CHECK(sum.at(i) == sum_of_all(ranks, i));
    }
  }
}

TEST_CASE("shares are summed, and gathered" SEVERAL_RANKS) {
  Communicator& ranks = *join_launch();
  for (const Index share : {1, 3, 40000}) {
    const Index count = share * ranks.size(), begin = share * ranks.rank();
    const Tensor x = own(ranks, count, DType::f32);
    ranks.reduce_scatter(x).wait();
    for (Index i = begin; i < begin + share; i += 1 + share / 50) CHECK(x.at(i) == sum_of_all(ranks, i));
    ranks.all_gather(x).wait();
    for (Index i = 0; i < count; i += 1 + count / 50) CHECK(x.at(i) == sum_of_all(ranks, i));
  }
}

TEST_CASE("a rank's values reach all others" SEVERAL_RANKS) {
  Communicator& ranks = *join_launch();
  for (const DType type : {DType::f32, DType::i32, DType::boolean}) {
    const Tensor x = Tensor::full({1000}, ranks.rank() == 0 ? 1 : 0, type);
    ranks.broadcast(x).wait();
    CHECK(x.at(999) == 1);
  }
}

TEST_CASE("all ranks get the same bits, again and again" SEVERAL_RANKS) {
  Communicator& ranks = *join_launch();
  std::vector<std::string> before;
  for (int repeat = 0; repeat < 5; ++repeat) {
    Generator random(test_seed(7), static_cast<std::uint64_t>(ranks.rank()));
    const Tensor x = Tensor::randn({30011}, random);
    ranks.all_reduce(x).wait();
    const std::vector<std::string> bits =
        ranks.gather(std::string(static_cast<const char*>(x.raw()), static_cast<std::size_t>(x.bytes())));
    for (const std::string& of_rank : bits) CHECK(of_rank == bits[0]);
    if (!before.empty()) CHECK(bits == before);
    before = bits;
  }
}

TEST_CASE("MPI's successes throw nothing") { CHECK_NOTHROW(check_mpi(MPI_SUCCESS, "all_reduce")); }

TEST_CASE("MPI's errors are reported in its words" SEVERAL_RANKS) {
  join_launch();
  CHECK_THROWS_WITH_AS(check_mpi(MPI_ERR_COUNT, "all_reduce"),
                       doctest::Contains("[all_reduce] MPI: MPI_ERR_COUNT"), CommunicationError);
}
