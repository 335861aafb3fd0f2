#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

namespace tapeformer {

/// What is written to standard error while it exists, kept from the screen.
class CapturedLog {
 public:
  CapturedLog() : file_(std::tmpfile()), screen_(dup(STDERR_FILENO)) {
    std::fflush(stderr);
    dup2(fileno(file_), STDERR_FILENO);
  }
  ~CapturedLog() {
    std::fflush(stderr);
    dup2(screen_, STDERR_FILENO);
    close(screen_);
    std::fclose(file_);
  }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  std::string text() const {
    std::fflush(stderr);
    std::string text;
    std::rewind(file_);
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) text += static_cast<char>(c);
    return text;
  }
  bool says(const std::string& words) const { return text().find(words) != std::string::npos; }

 private:
  std::FILE* file_;
  int screen_;
};

}  // namespace tapeformer
