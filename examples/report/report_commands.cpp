#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/examples/report/compare.h>
#include <tapeformer/examples/report/report_commands.h>
#include <tapeformer/examples/report/report_data.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/progress.h>

#include <sys/ioctl.h>
#include <unistd.h>

namespace tapeformer {
namespace {

/// The width of standard output; 0 unless it is a terminal.
int output_columns() {
  winsize window{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 ? window.ws_col : 0;
}

}  // namespace

ReportCommands::ReportCommands(const CommandLine& line)
    : report_(line.command("report", "draw runs, side by side, as one HTML file to look at in a browser")),
      compare_(line.command("compare", "print the results of runs, and the options in which they differ")) {
  report_.option("RUN", runs_, "run folders").required();
  report_.option("--output", output_,
                 "the file to write [report.html in the run folder; of several runs, in the current one]");
  compare_.option("RUN", runs_, "run folders").required();
  compare_.flag("--json", json_, "as JSON, with every digit");
}

std::optional<int> ReportCommands::execute() const {
  if (!report_.chosen() && !compare_.chosen()) return {};
  const std::vector<RunRecord> runs = read_runs(runs_);
  if (report_.chosen()) {
    const std::string by_default = runs.size() > 1 ? kReportPage : RunFolder(runs_.front()).file(kReportPage);
    const std::string& path = output_.empty() ? by_default : output_;
    write_atomically(path, report_page(report_data(runs)));
    print("{}\n", path);
    return kExitSuccess;
  }
  const Json comparison = comparison_json(runs);
  print("{}", json_ ? comparison.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"
                    : comparison_text(comparison, output_columns()));
  return kExitSuccess;
}

}  // namespace tapeformer
