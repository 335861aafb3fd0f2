#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/storage.h>
#include <tapeformer/examples/report/report_data.h>
#include <tapeformer/examples/report/run_record.h>
#include <tapeformer/examples/train/run_report.h>

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

namespace tapeformer {
namespace {

constexpr double kReportShare = 0.01;      // of the time, for reports during a run
constexpr std::size_t kReportLines = 500;  // so that long runs take no more memory; `report` shows all

/// The name of the processor in Linux, or else its kind.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t begin = line.find(": ");
    if (begin != std::string::npos) return line.substr(begin + 2);
  }
#if defined(__x86_64__)
  return "x86-64";
#elif defined(__aarch64__)
  return "AArch64";
#else
  return "unknown";
#endif
}

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32] = "";
  if (gmtime_r(&now, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

constexpr const char* kCompiler =
#if defined(__clang__)
    "clang " __clang_version__;
#else
    "g++ " __VERSION__;
#endif

/// The session: when it began, the command, this version and its compiler, the processor and the machine.
Json session_json(const std::string& command) {
  const double pages = static_cast<double>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  return {{"began", time_text()},
          {"command", command},
          {"version", kVersion},
          {"compiler", kCompiler},
          {"processor", processor_name()},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_bytes", pages * static_cast<double>(sysconf(_SC_PAGESIZE))},
          {"host", host_name()}};
}

}  // namespace

void RunReport::begin() {
  const Session& s = session_;
  written_ = now_seconds();
  if (!s.folder.writes()) return;
  report_ = std::make_shared<Json>(Json::object());
  try {
    *report_ = read_run(s.folder.path(), 1).facts;
  } catch (const Error&) {  // older runs have none, and a damaged one is written again
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

Json model_facts(const Session& session, const Passes& passes) {
  const Session& s = session;
  const Passes::Cost& cost = passes.cost();
  Index parameters = 0, gradients = 0;
  for (const Parameter& parameter : s.task.model().parameters()) {
    parameters += parameter.value().bytes();
    if (const Tensor gradient = parameter.gradient(); gradient.defined()) gradients += gradient.bytes();
  }
  Json facts = {{"parameters", s.task.model().parameter_count()}};
  if (cost.tokens > 0)
    facts["flops_a_token"] = static_cast<double>(cost.flops) / static_cast<double>(cost.tokens);
  facts["memory"] = {
      {"parameters", parameters},
      {"gradients", gradients},
      {"optimizer", s.state_bytes},
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

bool RunReport::is_whole() const {
  const auto exists = [&](const std::string& name) {
    return std::filesystem::exists(session_.folder.file(name));
  };
  const std::string facts = kReportFile, page = kReportPage;
  return exists(page) && !exists(facts + ".partial") && !exists(page + ".partial");
}

void RunReport::write() {
  if (report_ == nullptr) return;
  const RunFolder& folder = session_.folder;
  const PhaseClock::Scope scope(session_.clock, Phase::log);
  const double begun = now_seconds();
  if (passes_.cost().is_known) (*report_)["model"] = model_facts(session_, passes_);
  folder.write(kReportFile, report_->dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  folder.write(kReportPage, report_page(report_data({read_run(folder.path(), kReportLines)})));
  written_ = now_seconds();
  seconds_ = written_ - begun;
}

}  // namespace tapeformer
