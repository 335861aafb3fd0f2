#include <doctest/doctest.h>
#include <tapeformer/autograd/communication/mpi.h>

#include <cstdlib>
#include <ostream>

using namespace tapeformer;

TEST_CASE("a process is alone") {
  CHECK(join_launch()->size() == 1);
  CHECK(join_launch() == join_launch());
  CHECK(name_of_this_rank().empty());
  limit_collectives(1);
  abort_launch(2);
  leave_launch();
}

TEST_CASE("a launcher's processes are refused with what the build lacks") {
  setenv("PMI_RANK", "0", 1);
  setenv("PMI_SIZE", "3", 1);
  CHECK_THROWS_WITH_AS(join_launch(),
                       "[join_launch] a launcher has started 3 processes, but this build has no MPI; try "
                       "configuring with -DTAPEFORMER_MPI=ON, or start the program without the launcher",
                       CommunicationError);
  unsetenv("PMI_RANK");
  unsetenv("PMI_SIZE");
}
