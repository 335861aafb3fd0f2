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

void add_report_commands(CommandLine& line) {
  struct Options {
    std::vector<std::string> runs;
    std::string output;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  const auto report = [options](const Command&) {
    const std::vector<RunRecord> runs = read_runs(options->runs);
    std::string path = options->output;
    if (path.empty()) path = runs.size() > 1 ? kReportPage : RunFolder(options->runs[0]).file(kReportPage);
    write_atomically(path, report_page(report_data(runs)));
    print("{}\n", path);
    return kExitSuccess;
  };
  const auto compare = [options](const Command&) {
    const Json comparison = comparison_json(read_runs(options->runs));
    winsize window{};
    const int columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 ? window.ws_col : 0;
    print("{}", options->json ? comparison.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"
                              : comparison_text(comparison, columns));
    return kExitSuccess;
  };
  const Command reporting =
      line.command("report", "draw runs side by side in one HTML file, to open in a browser", report);
  reporting.option("RUN", options->runs, "run folders").required();
  reporting
      .option("--output", options->output,
              "the file to write [report.html in the run folder; for several runs, in the current folder]")
      .not_empty();
  const Command comparing =
      line.command("compare", "print the results of runs, and the options in which they differ", compare);
  comparing.option("RUN", options->runs, "run folders").required();
  comparing.flag("--json", options->json, "as JSON, with every digit");
}

}  // namespace tapeformer
