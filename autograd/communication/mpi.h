#pragma once

#include <tapeformer/autograd/communication/communicator.h>

#include <memory>
#include <string>

namespace tapeformer {

/// The rank that a launcher (mpirun, mpiexec or srun) has given this process in its environment.
struct LaunchedRank {
  /// The number of this process, and the number of all that the launcher has started; 0 of 1 without one.
  int rank = 0, size = 1;
};
/// Reads the variables that Open MPI, MPICH, Intel MPI and Slurm set.
LaunchedRank launched_rank();
/// The name of this machine.
std::string host_name();

/// The communicator of the processes that a launcher has started together, for tensors of the CPU;
/// communicator_alone(), without MPI, if there is no launcher, or only one process. All calls return the same
/// one. It sums in the order of the ranks.
///
/// A separate thread makes all calls of MPI. It also answers other ranks that ask for this one's progress, so
/// that a rank that hangs can be named.
/// Throws: CommunicationError if this build has no MPI, the launcher is another MPI's, or MPI does not start
std::shared_ptr<Communicator> join_launch();

/// From now on a collective operation that takes longer throws a CommunicationError that names the ranks that
/// have not reached it, and their steps; 0 (the default) waits for ever.
void limit_collectives(double seconds);

/// Leaves the launch. Every process must call it at the end of a successful run.
void leave_launch();

/// Ends all processes of the launch with this exit code. Returns where there is no launch.
void abort_launch(int code);

/// The rank and the machine: "rank 2 on node7"; empty where there is no launch.
std::string name_of_this_rank();

}  // namespace tapeformer
