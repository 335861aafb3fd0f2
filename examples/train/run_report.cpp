#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/storage.h>
#include <tapeformer/examples/report/report_data.h>
#include <tapeformer/examples/report/run_record.h>
#include <tapeformer/examples/report/session.h>
#include <tapeformer/examples/train/run_report.h>

#include <omp.h>
#include <nlohmann/json.hpp>

#include <utility>

namespace tapeformer {
namespace {

constexpr double kReportShare = 0.01;      // of the time, for reports during a run
constexpr std::size_t kReportLines = 500;  // so that long runs need no more memory; `report` shows all

Index bytes_in(const Tensor& tensor) {
  return tensor.defined() ? tensor.elements() * bytes_of(tensor.dtype()) : 0;
}

}  // namespace

RunReport::RunReport(Session& session, const Passes& passes) : session_(session), passes_(passes) {}

void RunReport::begin() {
  const Session& s = session_;
  written_ = now_seconds();
  if (!s.folder.writes()) return;
  report_ = std::make_shared<Json>(Json::object());
  try {
    *report_ = read_run(s.folder.path(), 1).facts;
  } catch (const Error&) {  // older runs have none, and where it is damaged it is written again
  }
  Json sessions = Json::array();
  for (const Json& before : report_->value("sessions", Json::array()))
    if (before.is_object() && number_in(before, "from_step") < static_cast<double>(s.step))
      sessions.push_back(before);
  Json session = session_json(s.control.command);
  session["from_step"] = s.step;
  session["threads"] = omp_get_max_threads();
  session["processes"] = s.ranks.size();
  session["device"] = s.compute.device.is_cuda() ? s.compute.text() : "cpu";
  session["precision"] = s.compute.precision;
  sessions.push_back(std::move(session));
  (*report_)["sessions"] = std::move(sessions);
}

Json RunReport::model_facts() const {
  const Session& s = session_;
  const Passes::Cost& cost = passes_.cost();
  Index parameters = 0, gradients = 0;
  for (const Parameter& parameter : s.task.model().parameters()) {
    parameters += bytes_in(parameter.value());
    gradients += bytes_in(parameter.gradient());
  }
  Json facts = {{"parameters", s.task.model().parameter_count()}};
  if (cost.tokens > 0)
    facts["flops_a_token"] = static_cast<double>(cost.flops) / static_cast<double>(cost.tokens);
  facts["memory"] = {
      {"parameters", parameters},
      {"gradients", gradients},
      {"optimizer", s.learner.state_bytes()},
      {"activations", cost.saved_bytes},
      {"peak", s.compute.device.is_cuda() ? cuda::memory_statistics(s.compute.device.index).peak_bytes
                                          : pool_statistics().peak_bytes}};
  return facts;
}

bool RunReport::is_due() const {
  return report_ != nullptr && now_seconds() - written_ >= seconds_ / kReportShare;
}

void RunReport::show_attention() {
  if (report_ == nullptr) return;
  Json example = session_.task.attention_example();
  if (example.is_null()) return;
  example["step"] = session_.step;
  (*report_)["attention"] = std::move(example);
}

void RunReport::write() {
  if (report_ == nullptr) return;
  const RunFolder& folder = session_.folder;
  const PhaseClock::Scope scope(session_.clock, Phase::log);
  const double begun = now_seconds();
  if (passes_.cost().is_known) (*report_)["model"] = model_facts();
  folder.write(kReportFile, report_->dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  folder.write(kReportPage, report_page(report_data({read_run(folder.path(), kReportLines)})));
  written_ = now_seconds();
  seconds_ = written_ - begun;
}

}  // namespace tapeformer
