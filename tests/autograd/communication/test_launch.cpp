#include <doctest/doctest.h>
#include <tapeformer/autograd/communication/mpi.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

using namespace tapeformer;

namespace {

/// During its lifetime, the environment has these variables of launchers and no others.
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

}  // namespace

TEST_CASE("each launcher gives a process its rank, and without one it is alone") {
  const struct {
    std::vector<std::pair<const char*, const char*>> variables;
    int rank, size;
  } all[] = {{{}, 0, 1},
             {{{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, 2, 4},
             {{{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}, 0, 3},
             {{{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}}, 5, 8},
             {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}, 0, 1}};  // in a job, but not by srun
  for (const auto& [variables, rank, size] : all) {
    const Environment environment(variables);
    CHECK(launched_rank().rank == rank);
    CHECK(launched_rank().size == size);
  }
}
