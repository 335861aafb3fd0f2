#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace tapeformer {

/// A folder that is called FOLDER.partial until finish() renames it, so that FOLDER is there with all its
/// files or not at all. The destructor removes it unless finish() was called, and the next process removes
/// what a killed one has left. While it exists, no other process can make the same folder.
class PartialFolder {
 public:
  /// `names` are the files that may be written into it. Others are never removed: FOLDER.partial may be
  /// another folder of that name.
  /// An empty FOLDER is removed.
  /// Throws: DataError if FOLDER holds something already, is a link or the root of a mounted disk, cannot be
  ///         made, or is being made by another process
  PartialFolder(const std::string& folder, std::vector<std::string> names);
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  std::string path() const { return partial_; }
  std::string file(const std::string& name) const { return partial_ / name; }
  /// The file's path after finish().
  std::string finished(const std::string& name) const { return folder_ / name; }
  /// Calls `write`, which writes the files; its errors name FOLDER. Throws: CheckpointError
  void fill(const std::function<void()>& write) const;
  /// Throws: DataError
  void finish();

 private:
  void lock();
  void remove();

  const std::vector<std::string> names_;
  std::filesystem::path folder_, partial_;
  int lock_ = -1;  // partial_, open
};

}  // namespace tapeformer
