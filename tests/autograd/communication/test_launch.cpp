#include <doctest/doctest.h>
#include <tapeformer/autograd/communication/mpi.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

using namespace tapeformer;

namespace {

/// An environment with these variables of launchers and no others, until it goes.
class Environment {
 public:
  explicit Environment(const std::vector<std::pair<const char*, const char*>>& variables) {
    for (const char* name : kAll) {
      const char* value = std::getenv(name);
      before_.emplace_back(name, value == nullptr ? "" : value);
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  }
  ~Environment() {
    for (const auto& [name, value] : before_) value.empty() ? unsetenv(name) : setenv(name, value.c_str(), 1);
  }

 private:
  static constexpr const char* kAll[] = {
      "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",    "PMI_SIZE",
      "SLURM_PROCID",         "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"};
  std::vector<std::pair<const char*, std::string>> before_;
};

void check_rank(int rank, int size) {
  CHECK(launched_rank().rank == rank);
  CHECK(launched_rank().size == size);
}

}  // namespace

TEST_SUITE("autograd/communication/launch") {
  TEST_CASE("a process without a launcher is alone") {
    const Environment none({});
    check_rank(0, 1);
  }

  TEST_CASE("each launcher says who a process is") {
    {
      const Environment open_mpi({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
      check_rank(2, 4);
    }
    {
      const Environment hydra({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}});
      check_rank(0, 3);
    }
    const Environment srun({{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}});
    check_rank(5, 8);
  }

  TEST_CASE("a program in a Slurm job that srun did not start is alone") {
    const Environment batch({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}});
    check_rank(0, 1);
  }
}
