#pragma once

#include <tapeformer/examples/shared/run_folder.h>

#include <limits>

namespace tapeformer {

constexpr const char *kReportFile = "report.json", *kReportPage = "report.html";

/// The records about a run in its folder, whatever version wrote them.
struct RunRecord {
  std::string name;  ///< the last part of the folder's path
  Json config;
  Json facts, evaluation;     ///< report.json and evaluation.json; empty objects without these
  std::vector<Json> metrics;  ///< each an object
};

/// Reads a run; a damaged line of metrics is left out.
/// Throws: DataError or CheckpointError naming the folder, if it has no run or one of these files is damaged
RunRecord read_run(const std::string& folder,
                   std::size_t most_lines = std::numeric_limits<std::size_t>::max());
/// Reads several runs; where the last parts of paths are equal, the names are the whole paths.
std::vector<RunRecord> read_runs(const std::vector<std::string>& folders);

/// The loss of the best weights: that of the last evaluation at an end of the run, or a lower one of a later
/// validation, or without such evaluations the lowest; NaN if there is none.
double best_loss_of(const RunRecord& run);

/// The finite number in a field of an object, or NaN.
double number_in(const Json& object, const char* field);
Json number_or_null(double number);

}  // namespace tapeformer
