#include <tapeformer/autograd/error.h>
#include <tapeformer/data/partial_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace tapeformer {
namespace {

constexpr std::size_t kWaiting = 1 << 20;

}  // namespace

PartialFile::PartialFile(std::string path) : path_(std::move(path)) {
  struct stat known {};
  if (stat(path_.c_str(), &known) == 0 && !S_ISREG(known.st_mode)) {
    throw DataError(path_, 0, "cannot be replaced: it is not a regular file");
  }
  file_ = open((path_ + ".partial").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) fail(errno);
}

PartialFile::~PartialFile() { remove(); }

void PartialFile::remove() {
  if (file_ < 0) return;
  close(file_);
  unlink((path_ + ".partial").c_str());
  file_ = -1;
}

void PartialFile::fail(int error) {
  remove();
  throw DataError(path_, 0, std::string("cannot be written: ") + std::strerror(error));
}

void PartialFile::write_at(std::int64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
    offset += written;
  }
}

void PartialFile::flush() {
  write_at(written_, waiting_);
  written_ += static_cast<std::int64_t>(waiting_.size());
  waiting_.clear();
}

void PartialFile::append(std::string_view bytes) {
  waiting_ += bytes;
  if (waiting_.size() >= kWaiting) flush();
}

void PartialFile::replace_head(std::string_view bytes) {
  flush();
  write_at(0, bytes);
}

void PartialFile::finish() {
  flush();
  if (fsync(file_) != 0) fail(errno);
  if (std::rename((path_ + ".partial").c_str(), path_.c_str()) != 0) fail(errno);
  const int file = file_;
  file_ = -1;
  // The data are synced: nothing that close could report concerns them.
  close(file);
  sync_folder(std::filesystem::path(path_).parent_path());
}

void sync_folder(const std::string& folder) {
  const int file = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int error = file >= 0 && fsync(file) == 0 ? 0 : errno;
  if (file >= 0) close(file);
  // EINVAL: this file system cannot sync folders
  if (error != 0 && error != EINVAL) {
    throw DataError(folder, 0, std::string("cannot be written: ") + std::strerror(error));
  }
}

}  // namespace tapeformer
