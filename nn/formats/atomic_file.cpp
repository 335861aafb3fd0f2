#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/atomic_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tapeformer {
namespace {

[[noreturn]] void fail(const std::string& path, int error) {
  throw CheckpointError(path + ": cannot be written: " + std::strerror(error));
}

/// Both return 0 or the error number.
int write_all(int file, const ByteSpan& part) {
  const char* from = static_cast<const char*>(part.data);
  for (std::size_t left = part.bytes; left > 0;) {
    const ssize_t written = write(file, from, left);
    if (written < 0 && errno != EINTR) return errno;
    if (written < 0) continue;
    from += written;
    left -= static_cast<std::size_t>(written);
  }
  return 0;
}

int write_and_sync(int file, const std::vector<ByteSpan>& parts) {
  for (const ByteSpan& part : parts) {
    if (const int error = write_all(file, part)) return error;
  }
  return fsync(file) == 0 ? 0 : errno;
}

std::string partial_of(const std::string& path) { return path + ".partial"; }

int open_partial(const std::string& path) {
  struct stat known;
  if (stat(path.c_str(), &known) == 0 && !S_ISREG(known.st_mode)) {
    throw CheckpointError(path + ": cannot be replaced: it is not a regular file");
  }
  const int file = open(partial_of(path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) fail(path, errno);
  return file;
}

void sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) fail(path, errno);
  const int error = fsync(file) == 0 ? 0 : errno;
  close(file);
  if (error != 0 && error != EINVAL) fail(path, error);  // EINVAL: this file system cannot sync folders
}

}  // namespace

void write_atomically(const std::string& path, const std::vector<ByteSpan>& parts) {
  const std::string partial = partial_of(path);
  const int file = open_partial(path);
  int error = write_and_sync(file, parts);
  if (close(file) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(partial.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(partial.c_str());
    fail(path, error);
  }
  sync_folder_of(path);
}

void check_writable(const std::string& path) {
  close(open_partial(path));
  unlink(partial_of(path).c_str());
}

void write_atomically(const std::string& path, std::string_view text) {
  write_atomically(path, {ByteSpan{text.data(), text.size()}});
}

}  // namespace tapeformer
