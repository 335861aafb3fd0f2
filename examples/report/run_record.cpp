#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/examples/report/run_record.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

namespace tapeformer {

RunRecord read_run(const std::string& folder, std::size_t most_lines) {
  namespace fs = std::filesystem;
  const RunFolder run(folder);
  if (!fs::is_directory(folder))
    throw DataError(folder, 0, "is not a folder; pass a run folder made by train --run");
  if (!fs::exists(run.file("metrics.jsonl")))
    throw DataError(folder, 0,
                    "holds no run: it has no metrics.jsonl; pass a run folder made by train --run");
  RunRecord record;
  record.name = fs::absolute(folder).lexically_normal().filename().string();
  if (record.name.empty()) record.name = fs::absolute(folder).lexically_normal().parent_path().filename();
  const auto object_in = [&run](const char* name) {
    const std::string path = run.file(name);
    Json object = fs::exists(path) ? parse_json(read_file(path), path) : Json::object();
    if (!object.is_object()) throw CheckpointError(path + ": is not a JSON object; try to remove it");
    return object;
  };
  record.config = object_in("config.json");
  record.facts = object_in(kReportFile);
  record.evaluation = object_in(kEvaluationFile);
  record.metrics = run.metric_lines(most_lines);
  return record;
}

std::vector<RunRecord> read_runs(const std::vector<std::string>& folders) {
  std::vector<RunRecord> records;
  std::set<std::string> names;
  for (const std::string& folder : folders) names.insert(records.emplace_back(read_run(folder)).name);
  if (names.size() < records.size())
    for (std::size_t i = 0; i < records.size(); ++i) records[i].name = folders[i];
  return records;
}

double best_loss_of(const RunRecord& run) {
  double best = std::numeric_limits<double>::quiet_NaN();
  for (const Json& line : run.metrics) {
    best = std::fmin(best, number_in(line, "validation_loss"));
    for (const char* field : {"best_estimated_loss", "best_loss"})  // of both, the exact one
      if (const double measured = number_in(line, field); std::isfinite(measured)) best = measured;
  }
  return best;
}

double number_in(const Json& object, const char* field) {
  const auto found = object.find(field);
  const bool is_number = found != object.end() && found->is_number();
  return is_number ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

Json number_or_null(double number) { return std::isfinite(number) ? Json(number) : Json(); }

}  // namespace tapeformer
