#pragma once

#include <tapeformer/examples/shared/training_profile.h>
#include <tapeformer/examples/train/guard.h>

#include <deque>

namespace tapeformer {

/// Reports the course of a run: the progress line, the lines of the log and of metrics.jsonl about steps, the
/// plot of the losses, and where the time went. Steps are queued until their losses are read, checked by the
/// guard and logged; meanwhile a GPU computes the next step.
class TrainingLog {
 public:
  TrainingLog(Session& session, Guard& guard) : session_(session), guard_(guard) {}

  /// Begins to count time and tokens, at the session's first step.
  void begin();
  void push(QueuedStep step);
  /// Handles all queued steps except the last `most`. Throws: BadStep
  void flush_pending(std::size_t most = 0);
  /// Waits for a step's loss: the mean over all ranks' counted tokens. Collective at the first call.
  void read_loss(QueuedStep& step);
  /// Shows that batch `part`, from 0, of the next step is being computed.
  void show_batch(Index part) const;
  /// Adds a validation's loss to the plot.
  void plot_validation(double loss) { plotted_validations_.emplace_back(session_.step, loss); }
  void show_profile(const TrainingProfile& profile);
  /// Logs where the time went, and writes it with `line` as the session's last line of metrics.jsonl.
  void write_summary(const Json& line, const Passes& passes);

  Index tokens() const { return tokens_; }
  /// Seconds of training, those before an interruption included.
  double elapsed() const { return elapsed_before_ + now_seconds() - session_.started; }

  /// The time while a Pause exists does not count in the speed that the next line of the log shows.
  class Pause {
   public:
    explicit Pause(TrainingLog& log) : log_(log), begun_(now_seconds()), waited_(log.waited()) {}
    ~Pause() {
      log_.line_started_ += now_seconds() - begun_;
      log_.line_waited_ += log_.waited() - waited_;
    }
    Pause(const Pause&) = delete;

   private:
    TrainingLog& log_;
    const double begun_, waited_;
  };

  void describe(const FieldVisitor& field) {
    field("logged_loss", loss_sum_);
    field("logged_steps", summed_);
  }
  /// Continues from a checkpoint after `tokens` tokens; the folder still has all lines of metrics.
  void load(Index tokens);

 private:
  double waited() const { return session_.ranks.time().waited; }
  void add(QueuedStep& step, bool is_good);
  void begin_line();
  std::string text(Index step, double loss) const;

  Session& session_;
  Guard& guard_;
  std::deque<QueuedStep> pending_;
  double loss_sum_ = 0;  // over the steps since the last line
  Index summed_ = 0;
  Index tokens_ = 0;           // of all steps, before an interruption too
  double elapsed_before_ = 0;  // seconds before an interruption
  double line_started_ = 0;    // beginning of the next line
  Index line_tokens_ = 0;      // since the beginning of the next line
  double line_waited_ = 0;     // this rank's seconds of waiting for others until that beginning
  double waited_before_ = 0;   // and until the session began
  std::string status_;         // the progress line between steps
  std::vector<std::pair<double, double>> plotted_, plotted_validations_;  // step and loss
};

}  // namespace tapeformer
