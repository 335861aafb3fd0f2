#pragma once

#include <string>

namespace tapeformer {

/// Makes OpenMP's threads share the machine with other programs, and fit a container that may use only a part
/// of it. Call it first in main.
///
/// libgomp's threads spin for milliseconds while they wait for each other, even if another program has the
/// processor of the awaited thread. From here on they spin 1,000 times and then sleep. libgomp reads that
/// from GOMP_SPINCOUNT before main, so the variable is set and the program is executed again in the same
/// process. This is not done if the environment sets OMP_WAIT_POLICY, GOMP_SPINCOUNT or KMP_BLOCKTIME.
///
/// There are at most processor_quota() threads, unless the environment sets OMP_NUM_THREADS.
void share_processors();

/// The number of processors whose time Linux' control groups (version 1 or 2), and so containers, allow this
/// process, rounded up; 0 without a limit. The system's files are under `root`.
int processor_quota(const std::string& root = "");

/// From now on OpenMP's parallel regions have `count` threads, or as many as now if it is 0.
void use_threads(int count);

}  // namespace tapeformer
