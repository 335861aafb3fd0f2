#pragma once

#include <tapeformer/autograd/error.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// Files that are read whole, and files that are written whole or not at all. E is the error that a function
// throws, with the path and the system's reason: DataError or CheckpointError.
namespace tapeformer {

/// A file that is read in parts, at any offset, by any thread. It stays the same file, even if its path is
/// given to another one meanwhile. Copies share it.
template <class E = DataError>
class OpenedFile {
 public:
  /// Throws:  E if there is no such file, or it is a folder, a device or a pipe
  explicit OpenedFile(const std::string& path);

  const std::string& path() const { return path_; }
  /// Its size in bytes when it was opened.
  std::uint64_t size() const { return size_; }
  /// Copies the bytes [first, first + count) to `to`.
  /// Throws:  E if they cannot be read, or are no longer there
  void read(std::uint64_t first, std::size_t count, void* to) const;

 private:
  std::string path_;
  std::shared_ptr<const int> file_;  // closed with the last copy
  std::uint64_t size_ = 0;
};

/// A checksum that changes with any bit of the bytes, and with `sum`. It detects damage, not manipulation.
/// For bytes in pieces, whose lengths (except the last) are multiples of eight, pass the sum of each as `sum`
/// of the next.
std::uint64_t checksum(const void* bytes, std::size_t count, std::uint64_t sum = 0);

/// Only small files are read whole: a file with holes may claim terabytes and take no space.
constexpr std::uintmax_t kMostBytesRead = std::uintmax_t{1} << 30;

/// Throws:  E if there is no such file, it cannot be read, or it has more than `most_bytes`
template <class E = DataError>
std::string read_file(const std::string& path, std::uintmax_t most_bytes = kMostBytesRead);

/// The system's text for an errno, and a remedy: "No space left on device; try to free some space".
std::string system_error_text(int error);

/// True if `path` still names the file that is open as `file`.
bool is_at(const std::string& path, int file);

/// A file that is written piece by piece to `path`.partial, or to the first of .partial1, .partial2 ... that
/// no other process is writing; remains of a killed one are overwritten. finish() syncs it and renames it to
/// `path`, so that a reader finds the old content or the new, even after a power cut, and the last writer to
/// finish counts. Without finish(), or after an error, nothing is left behind and `path` is as it was.
template <class E = DataError>
class AtomicFile {
 public:
  /// Errors call the file `shown`, where that is another name than `path`.
  /// Throws:  E if `path` cannot be written, or is a folder, a device, a pipe or standard output
  explicit AtomicFile(std::string path, const std::string& shown = {});
  ~AtomicFile() { remove(); }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// These throw E, for example when the disk is full.
  void append(std::string_view bytes);
  void replace_head(std::string_view bytes);
  void finish();

 private:
  void flush();
  void write_at(std::int64_t offset, std::string_view bytes);
  [[noreturn]] void fail(int error);
  void remove();

  std::string path_, shown_, waiting_, partial_;
  std::int64_t written_ = 0;
  int file_ = -1;  // locked, so that no other process takes it for the remains of a killed one
};

/// Syncs a file, or the names in a folder, so that they survive a power cut.
template <class E = DataError>
void sync_to_disk(const std::string& path);

/// Appends to a file, creating it if there is none. After a failure or a kill, only a prefix of `text`
/// may be there. Throws: DataError
void append_to_file(const std::string& path, std::string_view text);

/// Replaces the file by the concatenated parts, by an AtomicFile. Throws: CheckpointError
void write_atomically(const std::string& path, const std::vector<std::string_view>& parts);
void write_atomically(const std::string& path, std::string_view text);

/// Throws as write_atomically() would, as far as that is known before anything is written.
void check_writable(const std::string& path);

}  // namespace tapeformer
