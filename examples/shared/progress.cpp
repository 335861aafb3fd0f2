#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/progress.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <mutex>

namespace tapeformer {

namespace {

/// The clock of now_seconds(). Every call notices a stop, whichever thread runs first afterwards.
class RunningClock {
 public:
  double look(bool tells) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const double now =
        std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    if (is_told_ && now - told_ > 1) stopped_ += now - told_;
    is_told_ = is_told_ || tells;
    if (tells || now - told_ > 1) told_ = now;
    return now - stopped_;
  }

 private:
  std::mutex mutex_;
  bool is_told_ = false;
  double told_ = 0, stopped_ = 0;
};

RunningClock running_clock;
std::function<double()> clock_of_a_test;

}  // namespace

double now_seconds() { return clock_of_a_test ? clock_of_a_test() : running_clock.look(false); }

void set_clock(std::function<double()> clock) { clock_of_a_test = std::move(clock); }

void tell_clock_of_running() { running_clock.look(true); }

std::string duration_text(double seconds) {
  const auto whole = static_cast<Index>(std::llround(std::min(seconds, 9e18)));
  if (whole < 60) return format("{} s", whole);
  if (whole < 3600) return format("{} min {:02} s", whole / 60, whole % 60);
  return format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string short_duration_text(double seconds) {
  if (seconds < 0.9995) return format("{:.3g} ms", 1e3 * seconds);
  return seconds < 99.95 ? format("{:.3g} s", seconds) : duration_text(seconds);
}

std::string number_text(double number) {
  return format(number >= 9999.5 && number < 1e9 ? "{:.0f}" : "{:.4g}", number);
}

std::string count_text(double count) {
  if (count < 999.5) return format("{:.0f}", count);
  if (count < 999.95e3) return format("{:.1f}k", count / 1e3);
  if (count < 999.995e6) return format("{:.2f}M", count / 1e6);
  return count < 999.995e9 ? format("{:.2f}G", count / 1e9) : format("{:.2f}T", count / 1e12);
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1023.95 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return format(unit == 0 ? "{:.0f} {}" : "{:.1f} {}", bytes, units[unit]);
}

Progress::Progress() : terminal_(isatty(STDERR_FILENO) != 0) {}

std::pair<int, int> Progress::terminal_size() {
  winsize window{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1 && window.ws_row > 1;
  return known ? std::pair<int, int>(window.ws_col, window.ws_row) : std::pair(80, 24);
}

void Progress::status(const std::string& line) {
  const double now = now_seconds();
  if (!terminal_ || (last_ >= 0 && now - last_ < 0.2)) return;
  last_ = now;
  shown_ = true;
  const int width = terminal_size().first - 1;  // a wrapped line cannot be rewritten
  std::fprintf(stderr, "\r\033[K%.*s", width, line.c_str());
  std::fflush(stderr);
}

void Progress::log(const std::string& line) {
  if (interrupted()) drawn_.clear();  // they stay: the message of Ctrl-C is printed below it
  const std::vector<std::string> lines = drawn_;
  erase_drawing();
  if (!silent_) std::fprintf(stderr, "%s\n", line.c_str());
  draw(lines);
}

void Progress::draw(const std::vector<std::string>& lines) {
  if (!terminal_ || interrupted() || (lines.empty() && drawn_.empty())) return;
  erase_drawing();
  for (const std::string& line : lines) std::fprintf(stderr, "%s\n", line.c_str());
  std::fflush(stderr);
  drawn_ = lines;
}

void Progress::erase_drawing() {
  clear();
  if (!drawn_.empty()) std::fprintf(stderr, "\033[%dA\033[J", static_cast<int>(drawn_.size()));
  drawn_.clear();
}

void Progress::clear() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
  shown_ = false;
  last_ = -1;
}

}  // namespace tapeformer
