#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace tapeformer {

/// A file with the given content that is gone at the end of the scope.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) {
    static std::atomic<int> count{0};
    const auto folder = std::filesystem::temp_directory_path();
    path_ = (folder / "tapeformer_test_").string() + std::to_string(getpid()) + "_" + std::to_string(count++);
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tapeformer
