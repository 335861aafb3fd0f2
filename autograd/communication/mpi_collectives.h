#pragma once

#include <tapeformer/autograd/communication/communicator.h>

// Leaves out the C++ interface, which MPI dropped in 2012 and some libraries still have.
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include <functional>

// The collective operations, in terms of MPI's; for mpi.cpp alone.
namespace tapeformer {

/// Throws: CommunicationError with MPI's text unless `status` is success
void check_mpi(int status, const char* doing);

/// Waits for an operation of MPI.
using FinishMpi = std::function<void(MPI_Request pending, const char* doing)>;

/// Runs a request among all ranks. Sums are not MPI's, whose order is up to the library: every rank gets all
/// ranks' values of its share, adds them in the order of the ranks, and the shares are gathered.
void run_collective(const Communicator::Request& request, int rank, int size, PooledVector<char>& scratch,
                    const FinishMpi& finish);

}  // namespace tapeformer
