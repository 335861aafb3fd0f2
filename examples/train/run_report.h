#pragma once

#include <tapeformer/examples/train/passes.h>

namespace tapeformer {

/// Keeps the report of a run, report.json and its page, up to date.
class RunReport {
 public:
  RunReport(Session& session, const Passes& passes) : session_(session), passes_(passes) {}

  /// Adds this session to the folder's report.
  void begin();
  /// Whether writing the report again would take only a small share of the run's time.
  bool is_due() const;
  /// Records the model's present attention weights.
  void show_attention();
  void write();
  /// False if a process was killed while or before it wrote the report.
  bool is_whole() const;

 private:
  Session& session_;
  const Passes& passes_;
  std::shared_ptr<Json> report_;      // the content of report.json
  double written_ = 0, seconds_ = 0;  // time and duration of the last writing
};

/// The model's size, its operations per token, and its memory by kind, in bytes.
Json model_facts(const Session& session, const Passes& passes);

}  // namespace tapeformer
