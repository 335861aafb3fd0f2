#include <tapeformer/tests/reference/check_below.h>
#include <tapeformer/tests/reference/seed.h>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <sstream>

namespace tapeformer {
namespace {

/// The largest error / bound of each place and case.
struct Margins {
  ~Margins() {
    const int file =
        open(std::getenv("TAPEFORMER_TEST_MARGINS"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return;
    std::ostringstream lines;
    for (const auto& [place, ratio] : worst) lines << seed_of_tests() << ' ' << ratio << ' ' << place << '\n';
    const std::string text = lines.str();
    if (write(file, text.data(), text.size()) < 0) std::abort();  // a lost margin would go unnoticed
    close(file);
  }

  std::mutex mutex;
  std::map<std::string, double> worst;
};

}  // namespace

void note_margin(double error, double bound, const std::string& place) {
  static const bool is_asked = std::getenv("TAPEFORMER_TEST_MARGINS") != nullptr;
  if (!is_asked) return;
  static Margins margins;
  const double infinity = std::numeric_limits<double>::infinity();
  const double ratio = error == 0 ? 0 : std::isnan(error / bound) ? infinity : error / bound;
  const doctest::TestCaseData* const running = doctest::getContextOptions()->currentTest;
  const std::string key = place + ' ' + (running == nullptr ? "" : running->m_name);
  const std::lock_guard lock(margins.mutex);
  double& worst = margins.worst[key];
  worst = std::max(worst, ratio);
}

void check_below(double error, double bound, const char* text, const char* file, int line, bool required) {
  const std::string path = file;
  note_margin(error, bound, path.substr(path.rfind("/tests/") + 7) + ':' + std::to_string(line));
  if (error <= bound) {
    CHECK(error <= bound);  // counts
  } else if (required) {
    ADD_FAIL_AT(file, line, std::string(text), " does not hold: ", error, " > ", bound);
  } else {
    ADD_FAIL_CHECK_AT(file, line, std::string(text), " does not hold: ", error, " > ", bound);
  }
}

}  // namespace tapeformer
