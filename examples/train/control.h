#pragma once

#include <tapeformer/autograd/communication/communicator.h>
#include <tapeformer/examples/shared/compute.h>
#include <tapeformer/examples/shared/program.h>

#include <functional>
#include <memory>
#include <string>

namespace tapeformer {

/// How a run is carried out. Nothing here changes what it computes, except last bits by threads and device,
/// and the rounding of the precision.
struct TrainingControl {
  double max_minutes = 0;  ///< time limit, after which it saves and stops; 0 for none
  Index steps = 0;         ///< on resuming: train up to this step, not to the run's own last one; 0: its own
  bool summary = false;    ///< only print the model's summary
  Index profile = 0;       ///< steps whose operations are timed; 0 for none
  bool dry_run = false;    ///< only say what memory and time the run would take
  bool plot = false;       ///< draw the losses on a terminal
  std::string command;     ///< the command line, for the report
  ComputeOptions compute = {};
  std::function<bool()> stops = interrupted;                   ///< asked before every batch
  std::shared_ptr<Communicator> ranks = communicator_alone();  ///< the processes that train together
  bool shard_optimizer = false;    ///< each of them keeps its share of the optimizer's state
  double collective_minutes = 10;  ///< the longest that they wait for each other; 0 for no limit
};

}  // namespace tapeformer
