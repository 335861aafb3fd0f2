#include <tapeformer/autograd/text/file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace tapeformer {
namespace {

constexpr std::size_t kBuffer = 1 << 20;

template <class E>
[[noreturn]] void throw_error(const std::string& path, const char* what, int error) {
  throw E(path + ": " + what + ": " + std::strerror(error));
}

}  // namespace

template <class E>
std::string read_file(const std::string& path, std::uintmax_t most_bytes) {
  struct stat known {};
  if (stat(path.c_str(), &known) != 0) throw_error<E>(path, "cannot be opened", errno);
  if (!S_ISREG(known.st_mode)) throw E(path + ": is not a file");
  const auto size = static_cast<std::uintmax_t>(known.st_size);
  if (size > most_bytes) {
    throw E(path + ": " + std::to_string(size) + " bytes are too many; the most are " +
            std::to_string(most_bytes));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_error<E>(path, "cannot be opened", errno);
  std::string text(size, '\0');
  file.read(text.data(), known.st_size);
  if (file.bad()) throw_error<E>(path, "cannot be read", errno);
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

template <class E>
AtomicFile<E>::AtomicFile(std::string path) : path_(std::move(path)) {
  struct stat known {};
  if (stat(path_.c_str(), &known) == 0 && !S_ISREG(known.st_mode)) {
    throw E(path_ + ": cannot be replaced: it is not a regular file");
  }
  file_ = open((path_ + ".partial").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) fail(errno);
}

template <class E>
void AtomicFile<E>::remove() {
  if (file_ < 0) return;
  close(file_);
  unlink((path_ + ".partial").c_str());
  file_ = -1;
}

template <class E>
void AtomicFile<E>::fail(int error) {
  remove();
  throw_error<E>(path_, "cannot be written", error);
}

template <class E>
void AtomicFile<E>::write_at(std::int64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
    offset += written;
  }
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
  if (std::rename((path_ + ".partial").c_str(), path_.c_str()) != 0) fail(errno);
  close(file_);  // the data are synced: no error of close concerns them
  file_ = -1;
  sync_folder<E>(std::filesystem::path(path_).parent_path());
}

template <class E>
void sync_folder(const std::string& folder) {
  const int file = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int error = file >= 0 && fsync(file) == 0 ? 0 : errno;
  if (file >= 0) close(file);
  // EINVAL: this file system cannot sync folders
  if (error != 0 && error != EINVAL) throw_error<E>(folder, "cannot be written", error);
}

template class AtomicFile<DataError>;
template class AtomicFile<CheckpointError>;
template std::string read_file<DataError>(const std::string&, std::uintmax_t);
template std::string read_file<CheckpointError>(const std::string&, std::uintmax_t);
template void sync_folder<DataError>(const std::string&);

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
