#pragma once

#include <tapeformer/autograd/tensor.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// A safetensors file, mapped into memory. Opening it checks that the header is valid and covers the data
/// exactly: damaged, truncated and malicious files are refused. In a file that save_safetensors wrote, which
/// has a checksum, it finds any byte that has changed.
/// Source:  the format as described at https://github.com/huggingface/safetensors
class SafetensorsFile {
 public:
  /// Throws:  CheckpointError naming the file and what is wrong with it
  static SafetensorsFile open(const std::string& path);

  /// The names, in the order of their data.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return by_name_.count(name) > 0; }
  const std::string& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The type by the format's name: "F32", "BF16". Throws: CheckpointError if there is no such tensor
  const std::string& dtype(const std::string& name) const { return entry(name).dtype; }
  /// Throws: CheckpointError if there is no such tensor, or it has more axes or elements than a Shape
  Shape shape(const std::string& name) const;
  /// A copy. F16 and BF16 become f32; I64 and U8 become i32. A valid file may hold other types, and more
  /// axes or elements than a Shape can have; these are refused here.
  /// Throws:  CheckpointError if there is no such tensor, it is one of those, or a value does not fit
  Tensor tensor(const std::string& name) const;

 private:
  struct Entry {
    std::string name, dtype;
    std::vector<Index> sizes;
    std::size_t begin = 0, end = 0;  // in bytes_
  };

  SafetensorsFile() = default;
  const Entry& entry(const std::string& name) const;
  [[noreturn]] void fail(const std::string& what) const;
  void map();
  void parse_header(const char* text, std::size_t length, std::size_t data_bytes);
  void check_layout(std::size_t data_bytes);
  void check_sum();

  std::string path_;
  std::shared_ptr<const unsigned char> bytes_;  // the whole file
  std::size_t size_ = 0, data_at_ = 0;
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
