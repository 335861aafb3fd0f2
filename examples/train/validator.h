#pragma once

#include <tapeformer/examples/train/run_report.h>
#include <tapeformer/examples/train/training_log.h>

namespace tapeformer {

/// Validates, and writes the best weights and the last ones to the run folder.
class Validator {
 public:
  Validator(Session& session, const Guard& guard, TrainingLog& log, RunReport& report)
      : session_(session), guard_(guard), log_(log), report_(report) {}

  /// Whether to validate after the step just done.
  bool is_due() const;
  /// Throws: BadStep if the loss is not finite
  void validate();
  /// Keeps the weights of a run that stops before its first validation, so that there are some to use. The
  /// checkpoint does not record this: a resumed run finds the same best weights as an uninterrupted one.
  void keep_first_weights();
  /// Gives the model the best weights.
  void load_best_weights();

  bool has_best() const { return has_best_; }
  double best_loss() const { return best_loss_; }
  /// Whether options.patience lets the run continue.
  bool is_patient() const;
  void renew_patience() { since_best_ = 0; }

  void describe(const FieldVisitor& field) {
    field("best_loss", best_loss_);
    field("has_best", has_best_);
    field("validations_since_best", since_best_);
  }

 private:
  bool keep_if_best(double loss);
  void measure();

  Session& session_;
  const Guard& guard_;
  TrainingLog& log_;
  RunReport& report_;
  double best_loss_ = 0;
  bool has_best_ = false;
  Index since_best_ = 0;
};

}  // namespace tapeformer
