#pragma once

#include <string>

namespace tapeformer {

/// Lets OpenMP's threads get along with other programs, and with a container that may use only a part of the
/// machine. Call it first thing in main, with main's arguments.
///
/// Threads that wait for each other spin: libgomp's for milliseconds before they sleep, while another program
/// may have the core that the awaited thread needs. From here on they spin for 50 microseconds.
/// libgomp reads that from GOMP_SPINCOUNT before main, so the variable is set and the program is executed
/// anew, in the same process. That is left out where the environment has OMP_WAIT_POLICY or GOMP_SPINCOUNT.
///
/// There are at most as many threads as processor_quota(), unless the environment has OMP_NUM_THREADS.
void share_processors(char** arguments);

/// How many processors the control groups of this process (version 1 or 2) give it the time of, rounded up;
/// 0 where there is no limit. `root` is where the system's files are.
int processor_quota(const std::string& root = "");

}  // namespace tapeformer
