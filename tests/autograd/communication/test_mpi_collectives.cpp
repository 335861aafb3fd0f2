#include <doctest/doctest.h>
#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/autograd/communication/mpi_collectives.h>
#include <tapeformer/tests/autograd/communication/collectives_case.h>

#include <string>
#include <vector>

using namespace tapeformer;

// Other ranks are needed: tests/mpirun.sh -n 3 tapeformer_tests --source-file=*/test_mpi_collectives.cpp.
#define SEVERAL_RANKS *doctest::skip(launched_rank().size == 1)

TEST_CASE("numbers of any count and type are summed, divided, gathered and sent" SEVERAL_RANKS) {
  Communicator& ranks = *join_launch();
  // Below and above what is gathered whole, divisible by the number of ranks and not.
  for (const Index count : {1, 5, 1000, 20000, 100003, 3 * ranks.size(), 40000 * ranks.size()})
    for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::i32})
      check_collectives(ranks, count, type, Device::cpu());
  const Tensor flags = Tensor::full({1000}, ranks.rank() == 0, DType::boolean);
  ranks.broadcast(flags).wait();
  CHECK(flags.at(999) == 1);
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
