#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/examples/report/loss_plot.h>
#include <tapeformer/examples/report/run_record.h>
#include <tapeformer/examples/shared/ranks.h>
#include <tapeformer/examples/train/training_log.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {

void TrainingLog::load(Index tokens) {
  tokens_ = tokens;
  elapsed_before_ = session_.folder.elapsed();
}

void TrainingLog::begin() {
  begin_line();
  waited_before_ = line_waited_;
  status_ = format("step {}/{}", session_.step, session_.options.steps);
  if (!session_.control.plot || !session_.folder.writes()) return;
  for (const Json& line : session_.folder.metric_lines()) {
    for (auto [points, field] :
         {std::pair(&plotted_, "train_loss"), std::pair(&plotted_validations_, "validation_loss")})
      if (line.contains(field)) points->emplace_back(number_in(line, "step"), number_in(line, field));
  }
}

/// Begins to count tokens, seconds and waiting for the next line.
void TrainingLog::begin_line() {
  line_tokens_ = 0;
  line_started_ = now_seconds();
  line_waited_ = waited();
}

void TrainingLog::push(QueuedStep step) {
  pending_.push_back(std::move(step));
  flush_pending(session_.compute.device.is_cuda() ? 1 : 0);
}

void TrainingLog::flush_pending(std::size_t most) {
  while (pending_.size() > most) {
    QueuedStep& step = pending_.front();
    read_loss(step);
    const bool is_good = guard_.is_good(step);
    session_.clock.enter(Phase::log);
    add(step, is_good);
    pending_.pop_front();
  }
}

void TrainingLog::read_loss(QueuedStep& step) {
  if (step.loss) return;
  double loss_sum = 0, counted = 0, tokens = 0;
  for (Pass& pass : step.passes) {
    loss_sum += pass.loss.item() * static_cast<double>(pass.batch.counted);
    counted += static_cast<double>(pass.batch.counted);
    tokens += static_cast<double>(pass.batch.tokens);
  }
  const std::vector<double> all = session_.ranks.sum({loss_sum, counted, tokens});
  step.loss = all[0] / std::max(1.0, all[1]);
  line_tokens_ += static_cast<Index>(all[2]);
  tokens_ += static_cast<Index>(all[2]);
}

std::string TrainingLog::text(Index step, double loss) const {
  const double now = now_seconds();
  const double per_step = (now - session_.started) / static_cast<double>(step - session_.first_step);
  const double left = per_step * static_cast<double>(session_.options.steps - step);
  const double speed = static_cast<double>(line_tokens_) / std::max(1e-9, now - line_started_);
  return format("step {}/{}  loss {:.4f}  rate {:.2e}  {} tokens/s  {} left", step, session_.options.steps,
                loss, session_.learning_rate(step - 1), count_text(speed), duration_text(left));
}

/// Logs a line if one is due at this step. The step's loss counts in the mean if it is good.
void TrainingLog::add(QueuedStep& step, bool is_good) {
  const Session& s = session_;
  if (is_good) {
    loss_sum_ += *step.loss;
    ++summed_;
  }
  if (summed_ == 0) return;
  const double mean = loss_sum_ / static_cast<double>(summed_);
  const bool is_logged = step.number % s.options.log_every == 0 || step.number == s.options.steps;
  if (is_logged || s.progress.on_terminal()) status_ = text(step.number, mean);
  s.progress.status(status_);
  if (!is_logged) return;
  s.progress.log(status_);
  const double seconds = now_seconds() - line_started_;
  Json metrics = {{"step", step.number},
                  {"train_loss", mean},
                  {"learning_rate", s.learning_rate(step.number - 1)},
                  {"gradient_norm", step.is_left_out ? Json() : Json(step.norm.item())},
                  {"tokens_per_second", std::round(static_cast<double>(line_tokens_) / seconds)},
                  {"tokens", tokens_},
                  {"elapsed", elapsed()},
                  {"epoch", s.task.epoch(s.batches(step.number))}};
  if (guard_.bad_steps() > 0) metrics["bad_steps"] = guard_.bad_steps();
  if (!s.is_alone()) metrics["waiting"] = waiting_shares(s.ranks, waited() - line_waited_, seconds);
  s.folder.append_metrics(metrics);
  if (s.control.plot) plotted_.emplace_back(step.number, mean);
  if (s.control.plot && s.progress.on_terminal()) {
    const auto [columns, rows] = Progress::terminal_size();
    s.progress.draw(loss_plot(plotted_, plotted_validations_, columns - 1, std::min(10, rows / 2 - 2),
                              terminal_takes_unicode()));
  }
  loss_sum_ = 0;
  summed_ = 0;
  begin_line();
}

void TrainingLog::show_batch(Index part) const {
  if (!session_.progress.on_terminal()) return;
  const Index batches = session_.options.accumulate;
  const std::string place = batches > 1 ? format(", batch {}/{}", part + 1, batches) : "";
  session_.progress.status(status_ + place);
}

void TrainingLog::show_profile(const TrainingProfile& profile) {
  const PhaseClock::Scope scope(session_.clock, Phase::log);
  const Pause pause(*this);
  profile.report(session_.progress, session_.folder);
}

/// Writes all of the line at once: a run that ends before writes it when it is resumed.
void TrainingLog::write_summary(const Json& line, const Passes& passes) {
  const Session& s = session_;
  s.progress.log("time: " + s.clock.text());
  if (!s.is_alone()) {
    const CommunicationTime time = s.ranks.time();
    s.progress.log(communication_text(
        time, waiting_shares(s.ranks, time.waited - waited_before_, now_seconds() - s.started)));
  }
  Json metrics = {{"step", s.step}, {"elapsed", elapsed()}};
  metrics.update(line);
  metrics["seconds"] = s.clock.json();
  if (s.compute.device.is_cuda()) {
    s.progress.log(peak_memory_text(s.compute.device));
    metrics["device"] = s.compute.text();
    const CudaGraphCache::Counts& counts = passes.graph_counts();
    metrics["graphs"] = {{"captured", counts.captured},
                         {"replayed", counts.replayed},
                         {"queued", counts.run},
                         {"given_up", counts.given_up},
                         {"replayed_in_samples", CudaGraphCache::counts_of_all().replayed - counts.replayed}};
    metrics["peak_device_bytes"] = cuda::memory_statistics(s.compute.device.index).peak_bytes;
  }
  s.folder.append_metrics(metrics);
}

}  // namespace tapeformer
