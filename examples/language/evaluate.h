#pragma once

#include <tapeformer/examples/shared/compute.h>

#include <optional>
#include <string>
#include <vector>

namespace tapeformer {

class Command;

struct EvaluateOptions {
  std::string run, part = "validation", tokenizer_model;
  std::vector<std::string> corpus;  ///< files and folders instead of the run's data
  Index average = 0;
  Index batch = 0, context = 0;       ///< 0: the run's; without a run 8, and the model's up to 1024
  Index validation_batches = 0;       ///< 0: the run's; without a run 20
  std::optional<std::uint64_t> seed;  ///< without a value the run's; without a run 1
  bool summary = false;               ///< only print the model's summary
  bool json = false;                  ///< print JSON, with every digit
  ComputeOptions compute;

  void add_to(const Command& command);
  /// Throws: Error naming an option that `command` was given and that would change nothing
  void refuse_ignored(const Command& command) const;
};

/// Prints the exact mean loss and an estimate from random batches; returns the exit code.
/// Throws: CheckpointError, DataError, Error, Interrupted
int evaluate(const EvaluateOptions& options);

}  // namespace tapeformer
