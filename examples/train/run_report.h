#pragma once

#include <tapeformer/examples/train/passes.h>

namespace tapeformer {

/// Keeps the report of a run, report.json and its page, up to date.
class RunReport {
 public:
  RunReport(Session& session, const Passes& passes) : session_(session), passes_(passes) {}

  /// Adds this session to what the folder's report says.
  void begin();
  /// Whether writing it again would take only a small share of the time.
  bool is_due() const;
  /// Notes what the model attends to now.
  void show_attention();
  void write();

 private:
  Session& session_;
  const Passes& passes_;
  std::shared_ptr<Json> report_;      // what report.json holds
  double written_ = 0, seconds_ = 0;  // when it was written last, and how long that took
};

/// The model's size, its operations per token, and its memory by kind, in bytes.
Json model_facts(const Session& session, const Passes& passes);

}  // namespace tapeformer
