#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/partial_folder.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace tapeformer {
namespace {

namespace files = std::filesystem;

[[noreturn]] void fail(const files::path& folder, const std::error_code& error) {
  throw DataError(folder, 0, "cannot be made: " + system_error_text(error.value()));
}

}  // namespace

PartialFolder::PartialFolder(const std::string& folder, std::vector<std::string> names)
    : names_(std::move(names)), folder_(files::path(folder + "/").parent_path()) {
  partial_ = folder_.string() + ".partial";
  std::error_code error, ignored;
  // An empty folder makes way now: a link to one, or a disk mounted there, would refuse finish().
  if (files::exists(files::symlink_status(folder_, ignored)) && rmdir(folder_.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    if (files::is_directory(folder_, ignored) && files::is_empty(folder_, ignored))
      throw DataError(folder_, 0, "cannot be replaced: " + reason + "; try a folder within it");
    throw DataError(folder_, 0, "already exists; try another folder, or remove it");
  }
  if (folder_.has_parent_path()) files::create_directories(folder_.parent_path(), error);
  if (error) fail(folder_, error);
  lock();
  remove();  // the remains of a killed process
  const bool is_made = files::create_directory(partial_, error);
  if (error || !is_made) {
    close(lock_);
    if (error && error != std::errc::file_exists) fail(folder_, error);
    throw DataError(
        folder_, 0,
        "cannot be made: " + partial_.string() + " is in the way; try another folder, or move it");
  }
  lock();
  if (lock_ < 0) fail(folder_, {errno, std::generic_category()});  // another process has removed it since
}

PartialFolder::~PartialFolder() {
  remove();
  close(lock_);
}

void PartialFolder::fill(const std::function<void()>& write) const {
  try {
    write();
  } catch (const CheckpointError& error) {
    std::string text = error.what();
    if (text.find(path()) == 0) text.replace(0, path().size(), folder_.string());
    throw CheckpointError(text);
  }
}

void PartialFolder::finish() {
  sync_to_disk(partial_);
  std::error_code error;
  files::rename(partial_, folder_, error);
  if (error) fail(folder_, error);
  sync_to_disk(folder_.parent_path());
}

/// Keeps other processes out. Throws: DataError if one of them is writing here
void PartialFolder::lock() {
  if (lock_ >= 0) close(lock_);
  lock_ = ::open(partial_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0 || flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  close(lock_);
  throw DataError(folder_, 0,
                  "is being made by another process; wait until it has ended, or try another folder");
}

void PartialFolder::remove() {
  std::error_code ignored;
  for (const std::string& name : names_) {
    files::remove(partial_ / name, ignored);
    files::remove(partial_ / (name + ".partial"), ignored);
  }
  rmdir(partial_.c_str());  // leaves a file or a link of that name
}

}  // namespace tapeformer
