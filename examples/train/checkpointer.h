#pragma once

#include <tapeformer/examples/train/validator.h>

#include <future>

namespace tapeformer {

/// Saves and restores a whole run: model, optimizer, task, and the state of the run's parts.
class Checkpointer {
 public:
  Checkpointer(Session& session, Guard& guard, TrainingLog& log, Validator& validator)
      : session_(session), guard_(guard), log_(log), validator_(validator) {}

  /// Makes the folder of a new run, and saves its initial state. Throws: DataError, CheckpointError
  void start();
  /// Resumes from the folder's checkpoint, whose state is `state`, and logs what differs from before.
  /// `steps_before` is the run's former number of steps if another was given, which the task's options then
  /// have; else 0. Throws: CheckpointError
  void resume(const Json& state, Index steps_before = 0);
  /// Whether to save after the step just done.
  bool is_due() const;
  /// Saves; on a GPU, the checkpoint is written while training continues. Throws: BadStep if the weights
  /// give a loss that is not finite
  void save();
  /// Waits until the checkpoint of save() is on the disk.
  void wait();
  /// Whether the present weights have been saved.
  bool is_saved() const { return session_.checkpointed_step == session_.step; }

  bool is_finished = false;  ///< whether the run has reached its end; in the checkpoint too

  void describe(const FieldVisitor& field) {
    field("step", session_.step);
    field("finished", is_finished);
    validator_.describe(field);
    log_.describe(field);
  }

 private:
  void change_steps(Index before);

  Session& session_;
  Guard& guard_;
  TrainingLog& log_;
  Validator& validator_;
  std::future<void> writing_;  // the last checkpoint, while it is being written
};

}  // namespace tapeformer
