#pragma once

#include <tapeformer/examples/shared/run_folder.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>

#include <unistd.h>

#include <cstdio>
#include <string>

namespace tapeformer {

/// Captures standard error (or output) during its lifetime.
class CapturedLog {
 public:
  explicit CapturedLog(std::FILE* stream = stderr)
      : stream_(stream), file_(std::tmpfile()), screen_(dup(fileno(stream))) {
    std::fflush(stream_);
    dup2(fileno(file_), fileno(stream_));
  }
  ~CapturedLog() {
    std::fflush(stream_);
    dup2(screen_, fileno(stream_));
    close(screen_);
    std::fclose(file_);
  }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  std::string text() const {
    std::fflush(stream_);
    std::string text;
    std::rewind(file_);
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) text += static_cast<char>(c);
    return text;
  }
  bool says(const std::string& words) const { return text().find(words) != std::string::npos; }

 private:
  std::FILE *stream_, *file_;
  int screen_;
};

/// The fixture of cases that capture the log of a run.
struct Logged {
  const CapturedLog log;
  const TemporaryFolder temporary;
};

/// The fixture of cases with a run.
struct RunCase : Logged {
  const RunFolder folder{temporary.file("run")};
};

}  // namespace tapeformer
