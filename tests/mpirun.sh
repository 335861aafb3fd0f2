#!/usr/bin/env bash
# mpirun on this machine, however few processors it has and whoever runs it.
# Usage: tests/mpirun.sh -n RANKS PROGRAM [ARGUMENTS...]
set -euo pipefail
# For Open MPI 4, and 5 (PRTE); MPICH knows none of them and needs none.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
export OMPI_MCA_hwloc_base_binding_policy=${OMPI_MCA_hwloc_base_binding_policy:-none} OMPI_MCA_mpi_yield_when_idle=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec "${MPIRUN:-mpirun}" "$@"
