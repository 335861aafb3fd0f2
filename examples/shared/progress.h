#pragma once

#include <tapeformer/autograd/shape.h>

#include <chrono>
#include <string>

namespace tapeformer {

/// Seconds on a clock that never jumps.
double now_seconds();
/// "45 s", "3 min 20 s", "2 h 05 min".
std::string duration_text(double seconds);
/// 12345 as "12.3k".
std::string count_text(double count);
/// Up to three numbers as printf writes them: format("%.4f", loss).
std::string format(const char* pattern, double a, double b = 0, double c = 0);

/// A progress line that is rewritten in place on a terminal; in a log, only the lines to keep. Writes to
/// standard error, so that results on standard output stay clean.
class Progress {
 public:
  Progress();
  /// Writes for a terminal, or for a log.
  explicit Progress(bool terminal) : terminal_(terminal) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows `line` on a terminal, at most five times a second.
  void show(const std::string& line);
  /// Prints a line that stays.
  void keep(const std::string& line);
  /// Erases the line; the next one is shown at once.
  void clear();
  bool on_terminal() const { return terminal_; }

 private:
  bool terminal_;
  bool shown_ = false;
  double last_ = -1;
};

}  // namespace tapeformer
