#pragma once

#include <tapeformer/examples/shared/run_folder.h>

#include <limits>

namespace tapeformer {

constexpr const char *kReportFile = "report.json", *kReportPage = "report.html";
constexpr const char* kEvaluationFile = "evaluation.json";  // what `evaluate` measured last

/// A run as its folder records it, whatever version wrote it.
struct RunRecord {
  std::string name;  ///< the last part of the folder's path
  Json config;
  Json facts, evaluation;     ///< of report.json and evaluation.json; empty objects without these
  std::vector<Json> metrics;  ///< each an object
};

/// Throws: DataError or CheckpointError naming the folder, if it holds no training or one of these files
///         is damaged. A damaged line of metrics is left out.
RunRecord read_run(const std::string& folder,
                   std::size_t most_lines = std::numeric_limits<std::size_t>::max());
/// Reads several runs; where their last parts are alike, the names are the whole paths.
std::vector<RunRecord> read_runs(const std::vector<std::string>& folders);

/// The loss of the best weights: as an end has measured it, or of a later validation that was better; NaN if
/// there is none.
double best_loss_of(const RunRecord& run);

/// The finite number in that field of an object, or NaN.
double number_in(const Json& object, const char* field);
Json number_or_null(double number);

}  // namespace tapeformer
