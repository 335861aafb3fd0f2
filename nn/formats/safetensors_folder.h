#pragma once

#include <tapeformer/nn/formats/safetensors.h>

#include <map>
#include <string>
#include <vector>

namespace tapeformer {

/// The tensors of a checkpoint that may be spread over several safetensors files.
class SafetensorsFolder {
 public:
  /// model.safetensors; without it the files that model.safetensors.index.json lists; without either
  /// consolidated.safetensors.
  /// Throws:  CheckpointError naming the file that is missing or damaged, or what the index and its files
  ///          do not agree about
  static SafetensorsFolder open(const std::string& folder);
  /// Of one file.
  explicit SafetensorsFolder(const SafetensorsFile& file);

  /// Sorted.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return file_of_.count(name) > 0; }
  /// The file that a tensor is in. Throws: CheckpointError if there is no such tensor
  const SafetensorsFile& file(const std::string& name) const;
  Tensor tensor(const std::string& name) const { return file(name).tensor(name); }
  Shape shape(const std::string& name) const { return file(name).shape(name); }
  /// For messages: the only file, or the index.
  const std::string& path() const { return path_; }

 private:
  SafetensorsFolder() = default;
  static SafetensorsFolder open_index(const std::string& folder, const std::string& path);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;  // which of files_, by tensor
};

}  // namespace tapeformer
