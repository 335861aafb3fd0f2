#pragma once

#include <tapeformer/autograd/system/file.h>
#include <tapeformer/autograd/tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// Arrays of NumPy in a zip archive without compression, as numpy.savez and Marian write it. Opening it reads
/// the headers alone; the data are read when they are asked for.
/// Source:  the documentation of numpy.lib.format, and PKWARE's APPNOTE.TXT
class NpzFile {
 public:
  /// Throws:  CheckpointError naming the file, and the array that is compressed or damaged
  static NpzFile open(const std::string& path);

  /// The names, sorted and without ".npy".
  std::vector<std::string> names() const;
  /// True if there is an array of this name.
  bool contains(const std::string& name) const { return entries_.count(name) > 0; }
  /// The path that it was opened by.
  const std::string& path() const { return file_.path(); }
  /// A copy of an array of floating type.
  /// Throws:  CheckpointError if there is no such array, it has another type or order, or is damaged
  Tensor tensor(const std::string& name) const;
  /// The bytes of an array of bytes. Throws: as tensor()
  std::string bytes(const std::string& name) const;

 private:
  struct Entry {
    std::string type;  // "<f4"
    std::vector<Index> sizes;
    bool by_columns = false;  // Fortran's order
    std::uint64_t data_at = 0, bytes = 0;
    std::uint32_t sum = 0, sum_of_header = 0;
  };

  explicit NpzFile(const std::string& path) : file_(path) {}
  std::string read(std::uint64_t first, std::uint64_t count) const;
  Entry parse_array(std::uint64_t at, std::uint64_t bytes) const;
  const Entry& entry(const std::string& name) const;
  void read_data(const std::string& name, const Entry& entry, void* to) const;
  [[noreturn]] void fail(const std::string& what) const;

  OpenedFile<CheckpointError> file_;
  std::map<std::string, Entry> entries_;
};

/// Writes tensors of type f32 and f64, and after them arrays of bytes, whole or not at all. The same input
/// gives the same bytes.
/// Throws:  CheckpointError if it cannot be written, or has more than 4 GiB
void save_npz(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
              const std::vector<std::pair<std::string, std::string>>& texts = {});

}  // namespace tapeformer
