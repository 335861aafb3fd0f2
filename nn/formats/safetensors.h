#pragma once

#include <tapeformer/autograd/system/file.h>
#include <tapeformer/autograd/tensor.h>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tapeformer {

/// A file whose bytes differ from those that were written.
class DamagedFile : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

/// A safetensors file. Opening it checks that the header is valid and covers the data exactly: damaged,
/// truncated and malicious files are refused. In a file that save_safetensors wrote, the checksum reveals any
/// changed byte. The data are read on request and not mapped: a file that is truncated meanwhile gives an
/// error, where the pages of a mapping would give SIGBUS.
/// Source:  the format as described at https://github.com/huggingface/safetensors
class SafetensorsFile {
 public:
  /// Throws:  CheckpointError naming the file and what is wrong with it
  static SafetensorsFile open(const std::string& path);
  /// A dictionary of tensors that torch.save wrote, in any version's format, such as pytorch_model.bin. None
  /// of its code is run, and no checksum is checked.
  /// Throws:  CheckpointError naming the file, and the damage, or a value that is not a contiguous tensor
  static SafetensorsFile open_torch(const std::string& path);

  /// The names, in the order of their data.
  std::vector<std::string> names() const;
  /// True if it has a tensor of this name.
  bool contains(const std::string& name) const { return by_name_.count(name) > 0; }
  /// The path of the file.
  const std::string& path() const { return file_.path(); }
  /// The texts in the header.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The type by the format's name: "F32", "BF16". Throws: CheckpointError if there is no such tensor
  const std::string& dtype(const std::string& name) const { return entry(name).dtype; }
  /// Throws: CheckpointError if there is no such tensor, or it has more axes or elements than a Shape
  Shape shape(const std::string& name) const;
  /// A copy. F32, F64, I32 and BOOL stay, F16 and BF16 become f32, I64 and U8 i32. Other types, and more axes
  /// or elements than a Shape can have, are valid in a file and refused here.
  /// Throws:  CheckpointError if there is no such tensor, it is refused, a value does not fit, or the file
  ///          has become shorter
  Tensor tensor(const std::string& name) const;

 private:
  struct Entry {
    std::string name, dtype;
    std::vector<Index> sizes;
    std::size_t begin = 0, end = 0;  // in the data
  };

  explicit SafetensorsFile(const std::string& path) : file_(path) {}
  const Entry& entry(const std::string& name) const;
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_as_damaged(const std::string& what) const;
  static std::size_t bytes_of_shape(const std::string& type, const std::vector<Index>& sizes);
  void parse_header(std::string_view text, std::size_t data_bytes);
  void check_layout(std::size_t data_bytes);
  void check_sum(std::string header);

  OpenedFile<CheckpointError> file_;
  std::size_t data_at_ = 0;  // in the file
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

/// Writes the file whole or not at all (see write_atomically). The same input gives the same bytes: wide
/// elements first, so that all are aligned, otherwise in the given order.
/// Throws:  CheckpointError if it cannot be written, or a name is given twice, reserved or not UTF-8
void save_safetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace tapeformer
