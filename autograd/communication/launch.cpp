#include <tapeformer/autograd/communication/mpi.h>

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <utility>

namespace tapeformer {

LaunchedRank launched_rank() {
  // Open MPI's mpirun, MPICH's and Intel MPI's mpiexec, srun. A program without srun in a Slurm job has the
  // job's variables, but not the step's.
  constexpr std::pair<const char*, const char*> kLaunchers[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"PMI_RANK", "PMI_SIZE"},
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
  for (const auto& [rank, size] : kLaunchers) {
    const char *own = std::getenv(rank), *all = std::getenv(size);
    if (own != nullptr && all != nullptr && std::atoi(all) > 0) return {std::atoi(own), std::atoi(all)};
  }
  return {};
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace tapeformer
