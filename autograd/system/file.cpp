#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace tapeformer {
namespace {

constexpr std::size_t kBuffer = 1 << 20;

template <class E>
[[noreturn]] void throw_error(const std::string& path, const char* what, int error) {
  throw E(path + ": " + what + ": " + system_error_text(error));
}

/// A remedy for an error of the system; "" where its own text is enough.
const char* remedy(int error) {
  switch (error) {
    case ENOSPC: return "; try to free some space";
    case EDQUOT: return "; try to free some of your quota";
    case EACCES:
    case EPERM: return "; try to change the permissions, or another folder";
    case EROFS: return "; try another folder, or mount it writable";
    case EIO:
    case ESTALE: return "; the disk or the network failed: see the system's log, or try another disk";
    case EMFILE:
    case ENFILE: return "; try a larger limit of open files (ulimit -n)";
    default: return "";
  }
}

/// Writes all of it at `offset`, or, if that is -1, at the file's own position. Returns the errno, or 0.
int write_all(int file, std::string_view bytes, std::int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = offset < 0 ? write(file, bytes.data(), bytes.size())
                                       : pwrite(file, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
    if (offset >= 0) offset += written;
  }
  return 0;
}

}  // namespace

bool is_at(const std::string& path, int file) {
  struct stat opened {
  }, there{};
  return fstat(file, &opened) == 0 && stat(path.c_str(), &there) == 0 && opened.st_dev == there.st_dev &&
         opened.st_ino == there.st_ino;
}

std::string system_error_text(int error) { return std::strerror(error) + std::string(remedy(error)); }

template <class E>
OpenedFile<E>::OpenedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) throw_error<E>(path, "cannot be opened", errno);
  file_.reset(new int(file), [](const int* number) {
    close(*number);
    delete number;
  });
  struct stat known {};
  if (fstat(file, &known) != 0 || !S_ISREG(known.st_mode)) throw E(path + ": is not a file");
  size_ = static_cast<std::uint64_t>(known.st_size);
}

template <class E>
void OpenedFile<E>::read(std::uint64_t first, std::size_t count, void* to) const {
  for (std::size_t done = 0; done < count;) {
    const ssize_t found =
        pread(*file_, static_cast<char*>(to) + done, count - done, static_cast<off_t>(first + done));
    if (found < 0 && errno == EINTR) continue;
    if (found < 0) throw_error<E>(path_, "cannot be read", errno);
    if (found == 0) throw E(path_ + ": became shorter while it was being read");
    done += static_cast<std::size_t>(found);
  }
}

std::uint64_t checksum(const void* bytes, std::size_t count, std::uint64_t sum) {
  const char* at = static_cast<const char*>(bytes);
  while (count > 0) {
    std::uint64_t word = 0;
    const std::size_t taken = std::min(count, sizeof word);
    std::memcpy(&word, at, taken);
    sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
    sum ^= sum >> 29;
    at += taken, count -= taken;
  }
  return sum;
}

template <class E>
std::string read_file(const std::string& path, std::uintmax_t most_bytes) {
  const OpenedFile<E> file(path);
  if (file.size() > most_bytes) {
    throw E(format("{}: {} bytes are too many; the limit is {}", path, file.size(), most_bytes));
  }
  std::string text(file.size(), '\0');
  file.read(0, text.size(), text.data());
  return text;
}

template <class E>
AtomicFile<E>::AtomicFile(std::string path, const std::string& shown)
    : path_(std::move(path)), shown_(shown.empty() ? path_ : shown) {
  struct stat known {};
  if (stat(path_.c_str(), &known) == 0 && !S_ISREG(known.st_mode)) {
    throw E(shown_ + ": cannot be replaced: it is not a regular file");
  }
  if (is_at(path_, STDOUT_FILENO)) throw E(shown_ + ": cannot be replaced: it is standard output");
  for (int others = 0;; ++others) {  // each is being written by another process
    if (others == 100) fail(EWOULDBLOCK);
    partial_ = path_ + ".partial" + (others > 0 ? std::to_string(others) : "");
    file_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0) fail(errno);
    const bool is_taken = flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!is_taken && is_at(partial_, file_)) break;
    close(std::exchange(file_, -1));
  }
  if (ftruncate(file_, 0) != 0) fail(errno);  // the remains of a killed process
}

template <class E>
void AtomicFile<E>::remove() {
  if (file_ < 0) return;
  unlink(partial_.c_str());  // while it is locked
  close(std::exchange(file_, -1));
}

template <class E>
void AtomicFile<E>::fail(int error) {
  remove();
  throw_error<E>(shown_, "cannot be written", error);
}

template <class E>
void AtomicFile<E>::write_at(std::int64_t offset, std::string_view bytes) {
  if (const int error = write_all(file_, bytes, offset); error != 0) fail(error);
}

template <class E>
void AtomicFile<E>::flush() {
  write_at(written_, waiting_);
  written_ += static_cast<std::int64_t>(waiting_.size());
  waiting_.clear();
}

template <class E>
void AtomicFile<E>::append(std::string_view bytes) {
  if (waiting_.size() + bytes.size() < kBuffer) {
    waiting_ += bytes;
    return;
  }
  flush();
  write_at(written_, bytes);  // not copied: weights may take gigabytes
  written_ += static_cast<std::int64_t>(bytes.size());
}

template <class E>
void AtomicFile<E>::replace_head(std::string_view bytes) {
  flush();
  write_at(0, bytes);
}

template <class E>
void AtomicFile<E>::finish() {
  flush();
  if (fsync(file_) != 0) fail(errno);
  const int locked = fcntl(file_, F_DUPFD_CLOEXEC, 0);  // keeps the lock
  if (locked < 0) fail(errno);
  const int file = std::exchange(file_, locked);
  // Some network file systems report an error only here.
  int error = close(file) == 0 ? 0 : errno;
  if (error == 0 && std::rename(partial_.c_str(), path_.c_str()) != 0) error = errno;
  if (error != 0) fail(error);
  close(std::exchange(file_, -1));
  sync_to_disk<E>(std::filesystem::path(path_).parent_path());
}

template <class E>
void sync_to_disk(const std::string& path) {
  const int file = open(path.empty() ? "." : path.c_str(), O_RDONLY | O_CLOEXEC);
  const int error = file >= 0 && fsync(file) == 0 ? 0 : errno;
  if (file >= 0) close(file);
  // EINVAL: this file system cannot sync folders
  if (error != 0 && error != EINVAL) throw_error<E>(path, "cannot be written", error);
}

void append_to_file(const std::string& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) throw_error<DataError>(path, "cannot be written", errno);
  int error = write_all(file, text, -1);
  if (close(file) != 0 && error == 0) error = errno;
  if (error != 0) throw_error<DataError>(path, "cannot be written", error);
}

template class OpenedFile<DataError>;
template class OpenedFile<CheckpointError>;
template class AtomicFile<DataError>;
template class AtomicFile<CheckpointError>;
template std::string read_file<DataError>(const std::string&, std::uintmax_t);
template std::string read_file<CheckpointError>(const std::string&, std::uintmax_t);
template void sync_to_disk<DataError>(const std::string&);

void write_atomically(const std::string& path, const std::vector<std::string_view>& parts) {
  AtomicFile<CheckpointError> file(path);
  for (const std::string_view part : parts) file.append(part);
  file.finish();
}

void write_atomically(const std::string& path, std::string_view text) {
  write_atomically(path, std::vector<std::string_view>{text});
}

void check_writable(const std::string& path) { AtomicFile<CheckpointError>{path}; }

}  // namespace tapeformer
