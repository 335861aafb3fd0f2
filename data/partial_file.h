#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tapeformer {

/// A file that is written piece by piece: `path`.partial until finish() makes it `path`, synced, by a rename.
/// Without finish(), or after an error, nothing is left behind and `path` is as it was.
class PartialFile {
 public:
  /// Throws: DataError with the path and the system's reason, or if `path` is a folder, a device or a pipe
  explicit PartialFile(std::string path);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  /// All throw DataError, for example when the disk is full.
  void append(std::string_view bytes);
  void replace_head(std::string_view bytes);
  void finish();

 private:
  void flush();
  void write_at(std::int64_t offset, std::string_view bytes);
  [[noreturn]] void fail(int error);
  void remove();

  std::string path_, waiting_;
  std::int64_t written_ = 0;
  int file_ = -1;
};

/// Makes what was renamed in a folder last through a power cut. Throws: DataError
void sync_folder(const std::string& folder);

}  // namespace tapeformer
