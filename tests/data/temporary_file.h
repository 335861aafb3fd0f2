#pragma once

#include <tapeformer/tests/nn/formats/temporary_folder.h>

namespace tapeformer {

/// A file with the given content that is gone at the end of the scope.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) { write_bytes(path(), content); }
  std::string path() const { return folder_.file("it"); }

 private:
  const TemporaryFolder folder_;
};

}  // namespace tapeformer
