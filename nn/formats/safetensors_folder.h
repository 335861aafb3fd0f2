#pragma once

#include <tapeformer/nn/formats/safetensors.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// The tensors of a checkpoint in one or several files of safetensors or torch.save.
class SafetensorsFolder {
 public:
  /// Opens model.safetensors or the files that model.safetensors.index.json lists, or else pytorch_model.bin
  /// or those of its index.
  /// Throws:  CheckpointError naming the file that is missing or damaged, or the tensor on which the index
  ///          and its files disagree
  static SafetensorsFolder open(const std::string& folder);
  /// The tensors of one file.
  explicit SafetensorsFolder(const SafetensorsFile& file);

  /// The names, sorted.
  std::vector<std::string> names() const;
  /// True if one of the files has a tensor of this name.
  bool contains(const std::string& name) const { return file_of_.count(name) > 0; }
  /// The file of a tensor. Throws: CheckpointError if there is no such tensor
  const SafetensorsFile& file(const std::string& name) const;
  /// As SafetensorsFile::tensor().
  Tensor tensor(const std::string& name) const { return file(name).tensor(name); }
  /// As SafetensorsFile::shape().
  Shape shape(const std::string& name) const { return file(name).shape(name); }
  /// Throws:  CheckpointError unless each wanted tensor is there with its shape and a floating type, and the
  ///          only others are ignored ones
  void check_fit(const std::vector<std::pair<std::string, Shape>>& wanted,
                 const std::function<bool(const std::string& name)>& is_ignored) const;
  /// The only file, or the index; for messages.
  const std::string& path() const { return path_; }

 private:
  SafetensorsFolder() = default;
  static SafetensorsFolder open_index(const std::string& folder, const std::string& path);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;  // which of files_, by tensor
};

}  // namespace tapeformer
