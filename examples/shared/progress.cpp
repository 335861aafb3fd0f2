#include <tapeformer/examples/shared/progress.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

namespace tapeformer {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(seconds + 0.5);
  char text[64];
  if (whole < 60) {
    std::snprintf(text, sizeof text, "%lld s", whole);
  } else if (whole < 3600) {
    std::snprintf(text, sizeof text, "%lld min %02lld s", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld h %02lld min", whole / 3600, whole % 3600 / 60);
  }
  return text;
}

std::string count_text(double count) {
  char text[32];
  if (count < 1000) {
    std::snprintf(text, sizeof text, "%.0f", count);
  } else if (count < 1e6) {
    std::snprintf(text, sizeof text, "%.1fk", count / 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.2fM", count / 1e6);
  }
  return text;
}

std::string format(const char* pattern, double a, double b, double c) {
  char text[160];
  std::snprintf(text, sizeof text, pattern, a, b, c);
  return text;
}

Progress::Progress() : terminal_(isatty(STDERR_FILENO) != 0) {}

void Progress::show(const std::string& line) {
  const double now = now_seconds();
  if (!terminal_ || (last_ >= 0 && now - last_ < 0.2)) return;
  last_ = now;
  shown_ = true;
  winsize window{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1;
  const int width = known ? window.ws_col - 1 : 79;  // a wrapped line could not be rewritten
  std::fprintf(stderr, "\r\033[K%.*s", width, line.c_str());
  std::fflush(stderr);
}

void Progress::keep(const std::string& line) {
  clear();
  std::fprintf(stderr, "%s\n", line.c_str());
}

void Progress::clear() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
  shown_ = false;
  last_ = -1;
}

}  // namespace tapeformer
