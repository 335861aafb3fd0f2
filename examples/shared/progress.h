#pragma once

#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/shape.h>

#include <cstdio>
#include <utility>
#include <vector>

namespace tapeformer {

/// Seconds on a clock that never jumps, even if the time of day is changed. It does not count the time while
/// the machine sleeps, or while a process that calls tell_clock_of_running() is stopped.
double now_seconds();
/// For tests: makes now_seconds() return clock(), or the true time again if `clock` is empty.
void set_clock(std::function<double()> clock);
/// After the first call it must be called several times a second: a gap of more than a second counts as time
/// in which the process was stopped (Ctrl-Z, SIGSTOP).
void tell_clock_of_running();
/// "45 s", "3 min 20 s", "2 h 05 min".
std::string duration_text(double seconds);
/// To four digits, and all digits before the point below 10^9: "4.348", "25756".
std::string number_text(double number);
/// To three digits: "13.1 ms", "1.31 s", "2 min 11 s".
std::string short_duration_text(double seconds);
/// "999", "12.3k", "4.56M", "7.00G", "8.90T".
std::string count_text(double count);
inline std::string count_text(Index count) { return count_text(static_cast<double>(count)); }
/// "1.5 GiB".
std::string bytes_text(double bytes);

/// Prints the result of format() on standard output.
template <class... Values>
void print(std::string_view pattern, const Values&... values) {
  std::fputs(format(pattern, values...).c_str(), stdout);
}

/// A progress line that is rewritten in place on a terminal; a log gets only permanent lines. Writes to
/// standard error, so that standard output has only results.
class Progress {
 public:
  Progress();
  /// Writes for a terminal, or for a log.
  explicit Progress(bool terminal) : terminal_(terminal) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows `line` on a terminal, at most five times a second.
  void status(const std::string& line);
  /// Prints a line that stays.
  void log(const std::string& line);
  /// Draws lines on a terminal below the permanent ones, in place of those drawn before. They must be
  /// narrower than the terminal.
  void draw(const std::vector<std::string>& lines);
  /// Erases the progress line; the next one is shown at once.
  void clear();
  bool on_terminal() const { return terminal_; }
  /// Columns and rows of the terminal; 80 and 24 if it does not say.
  static std::pair<int, int> terminal_size();
  /// From now on nothing is written: another process writes.
  void be_silent() { silent_ = true, terminal_ = false; }

 private:
  bool terminal_;
  void erase_drawing();
  bool shown_ = false, silent_ = false;
  double last_ = -1;
  std::vector<std::string> drawn_;
};

}  // namespace tapeformer
