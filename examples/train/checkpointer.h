#pragma once

#include <tapeformer/examples/train/validator.h>

#include <future>

namespace tapeformer {

/// Saves a run whole, and restores it: model, optimizer, task, and the state of the run's parts.
class Checkpointer {
 public:
  Checkpointer(Session& session, Guard& guard, TrainingLog& log, Validator& validator)
      : session_(session), guard_(guard), log_(log), validator_(validator) {}

  /// Makes the folder of a new run, and saves what it begins with. Throws: DataError
  void start();
  /// Goes on from the folder's checkpoint, which has this state, and says what is different now. If a number
  /// of steps was asked for, which the task's options then hold, `steps_before` is the former one; else it
  /// is 0. Throws: CheckpointError
  void resume(const Json& state, Index steps_before = 0);
  /// Whether the step just done is one to save after.
  bool is_due() const;
  /// The checkpoint of a GPU's weights is written while that computes on. Throws: BadStep if the weights are
  /// ruined
  void save();
  /// Until what save() began is on the disk.
  void wait();
  /// Whether the weights as they are now have been saved.
  bool is_saved() const { return session_.checkpointed_step == session_.step; }

  bool is_finished = false;  ///< whether the run has come to its end; in the checkpoint too

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
  std::future<void> writing_;  // the last checkpoint, if it is being written
};

}  // namespace tapeformer
