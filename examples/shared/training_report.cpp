#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/storage.h>
#include <tapeformer/examples/report/loss_plot.h>
#include <tapeformer/examples/report/report_data.h>
#include <tapeformer/examples/report/run_record.h>
#include <tapeformer/examples/report/session.h>
#include <tapeformer/examples/shared/training_run.h>

#include <omp.h>

#include <algorithm>
#include <utility>

namespace tapeformer {
namespace {

constexpr double kReportShare = 0.01;      // of the time, for reports during a training
constexpr std::size_t kReportLines = 500;  // so that long trainings need no more memory; `report` shows all

Index bytes_in(const Tensor& tensor) {
  return tensor.defined() ? tensor.elements() * bytes_of(tensor.dtype()) : 0;
}

struct CountBytes : OptimizerVisitor {
  Index bytes = 0;
  void tensor(const std::string&, const Tensor& value) override { bytes += bytes_in(value); }
  void counter(const std::string&, std::int64_t&) override {}
};

}  // namespace

/// Collective, as ranks that share an optimizer's state show it together; the bytes are those of one rank.
Index TrainingRun::count_optimizer_bytes() {
  CountBytes state;
  visit_state(state);
  return parallel_.is_sharded() ? state.bytes / control_.ranks->size() : state.bytes;
}

/// The seconds of training, before a break too.
double TrainingRun::elapsed() const { return elapsed_before_ + now_seconds() - started_; }

/// Adds this session to what report.json says.
void TrainingRun::begin_report() {
  report_ = std::make_shared<Json>(Json::object());
  report_written_ = now_seconds();
  if (!folder_.writes()) return;
  try {
    *report_ = read_run(folder_.path(), 1).facts;
  } catch (const Error&) {  // older runs have none, and it is written anew where it is damaged
  }
  if (control_.plot)
    for (const Json& line : folder_.metric_lines())
      for (auto [points, field] :
           {std::pair(&plotted_, "train_loss"), std::pair(&plotted_validations_, "validation_loss")})
        if (line.contains(field)) points->emplace_back(number_in(line, "step"), number_in(line, field));
  Json sessions = Json::array();
  const Json before = report_->value("sessions", Json::array());
  for (const Json& session : before)
    if (session.is_object() && number_in(session, "from_step") < static_cast<double>(state_.step))
      sessions.push_back(session);
  Json session = session_json(control_.command);
  session["from_step"] = state_.step;
  session["threads"] = omp_get_max_threads();
  session["processes"] = control_.ranks->size();
  session["device"] = compute_.device.is_cuda() ? compute_.text() : "cpu";
  session["precision"] = compute_.precision;
  sessions.push_back(std::move(session));
  (*report_)["sessions"] = std::move(sessions);
}

/// The model's size, and its memory by kind, in bytes.
Json TrainingRun::report_facts() {
  Index parameters = 0, gradients = 0;
  for (Parameter& parameter : task_.model().parameters()) {
    parameters += bytes_in(parameter.value());
    gradients += bytes_in(parameter.gradient());
  }
  Json facts = {{"parameters", task_.model().parameter_count()}};
  if (pass_tokens_ > 0)
    facts["flops_a_token"] = static_cast<double>(pass_flops_) / static_cast<double>(pass_tokens_);
  facts["memory"] = {
      {"parameters", parameters},
      {"gradients", gradients},
      {"optimizer", optimizer_bytes_},
      {"activations", pass_saved_bytes_},
      {"peak", compute_.device.is_cuda() ? cuda::memory_statistics(compute_.device.index).peak_bytes
                                         : pool_statistics().peak_bytes}};
  return facts;
}

bool TrainingRun::report_is_due() const {
  return folder_.writes() && report_ != nullptr &&
         now_seconds() - report_written_ >= report_seconds_ / kReportShare;
}

/// Takes a look at what the model attends to now.
void TrainingRun::show_attention() {
  Json example = task_.attention_example();
  if (example.is_null()) return;
  example["step"] = state_.step;
  (*report_)["attention"] = std::move(example);
}

void TrainingRun::write_report() {
  if (!folder_.writes() || report_ == nullptr) return;
  const PhaseClock::Scope scope(clock_, Phase::log);
  const double begun = now_seconds();
  if (is_measured_) (*report_)["model"] = report_facts();
  folder_.write(kReportFile, report_->dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  folder_.write(kReportPage, report_page(report_data({read_run(folder_.path(), kReportLines)})));
  report_written_ = now_seconds();
  report_seconds_ = report_written_ - begun;
}

void TrainingRun::plot() {
  if (!control_.plot || !progress_.on_terminal()) return;
  const auto [columns, rows] = Progress::terminal_size();
  progress_.draw(loss_plot(plotted_, plotted_validations_, columns - 1, std::min(10, rows / 2 - 2),
                           terminal_takes_unicode()));
}

}  // namespace tapeformer
