#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/formats/little_endian.h>
#include <tapeformer/nn/formats/npz.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace tapeformer {
namespace {

// Records of a zip archive: their marks, and their sizes without names.
constexpr const char *kLocal = "PK\3\4", *kCentral = "PK\1\2", *kEnd = "PK\5\6";
constexpr std::uint64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kMostComment = 0xffff;
constexpr std::uint64_t kMostBytes = 0xffffffff;
constexpr const char* kNpy = "\x93NUMPY";

/// Continues a zip archive's sum, which begins with 0.
std::uint32_t zip_sum(std::string_view bytes, std::uint32_t sum = 0) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> values{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      values[i] = i;
      for (int bit = 0; bit < 8; ++bit) values[i] = values[i] >> 1 ^ (values[i] & 1 ? 0xedb88320u : 0);
    }
    return values;
  }();
  sum = ~sum;
  for (const char c : bytes) sum = table[(sum ^ static_cast<unsigned char>(c)) & 255] ^ sum >> 8;
  return ~sum;
}

/// The text after `key` in the header of an array, up to one of `ends`.
std::string value_after(const std::string& header, const std::string& key, const char* ends) {
  const std::size_t found = header.find(key);
  if (found == std::string::npos) throw CheckpointError(format("its header has no {}", key));
  const std::size_t from = found + key.size();
  return header.substr(from, header.find_first_of(ends, from) - from);
}

std::vector<Index> sizes_in(const std::string& list) {
  std::vector<Index> sizes;
  for (std::size_t at = 0; (at = list.find_first_of("0123456789", at)) != std::string::npos;) {
    const std::size_t end = std::min(list.find_first_not_of("0123456789", at), list.size());
    if (end - at > 18) throw CheckpointError("a size of its shape is too large");
    sizes.push_back(std::stoll(list.substr(at, end - at)));
    at = end;
  }
  return sizes;
}

/// The header of an array, which fills whole blocks of 64 bytes.
std::string npy_header(const char* type, const std::vector<Index>& sizes) {
  std::string shape;
  for (const Index size : sizes) shape += std::to_string(size) + ",";
  std::string text =
      std::string("{'descr': '") + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr std::size_t kBefore = 10;
  text.resize((kBefore + text.size()) / 64 * 64 + 64 - kBefore - 1, ' ');
  std::string bytes = kNpy + std::string("\1\0", 2);
  put(bytes, static_cast<std::uint16_t>(text.size() + 1));
  return bytes + text + "\n";
}

/// Writes one array after the other, and then the directory.
class NpzWriter {
 public:
  explicit NpzWriter(const std::string& path) : path_(path), file_(path) {}

  void add(const std::string& name, const std::string& header, std::string_view data) {
    std::string common;
    for (const int value : {20, 0, 0, 0, 0x21})  // version, flags, stored, midnight, 1 January 1980
      put(common, static_cast<std::uint16_t>(value));
    put(common, zip_sum(data, zip_sum(header)));
    const std::string full_name = name + ".npy";
    for (int i = 0; i < 2; ++i) put(common, static_cast<std::uint32_t>(header.size() + data.size()));
    put(common, static_cast<std::uint32_t>(full_name.size()));  // and no other fields
    const std::uint64_t at = end_;
    append(kLocal + common + full_name + header);
    append(data);
    if (end_ > kMostBytes) throw CheckpointError(path_ + ": would have more than 4 GiB, an archive's most");
    directory_ += std::string(kCentral) + std::string("\24\0", 2) + common + std::string(10, '\0');
    put(directory_, static_cast<std::uint32_t>(at));
    directory_ += full_name;
    ++count_;
  }

  void finish() {
    std::string tail = kEnd + std::string(4, '\0');
    for (int i = 0; i < 2; ++i) put(tail, count_);
    put(tail, static_cast<std::uint32_t>(directory_.size()));
    put(tail, static_cast<std::uint32_t>(end_));
    append(directory_ + tail + std::string(2, '\0'));
    file_.finish();
  }

 private:
  void append(std::string_view bytes) {
    file_.append(bytes);
    end_ += bytes.size();
  }

  std::string path_, directory_;
  AtomicFile<CheckpointError> file_;
  std::uint64_t end_ = 0;
  std::uint16_t count_ = 0;
};

}  // namespace

void NpzFile::fail(const std::string& what) const { throw CheckpointError(path() + ": " + what); }

std::string NpzFile::read(std::uint64_t first, std::uint64_t count) const {
  if (first > file_.size() || count > file_.size() - first) fail("is damaged: it ends before its arrays do");
  std::string bytes(count, '\0');
  file_.read(first, count, bytes.data());
  return bytes;
}

NpzFile NpzFile::open(const std::string& path) {
  NpzFile file(path);
  const std::uint64_t size = file.file_.size(), tail_at = size - std::min(size, kEndBytes + kMostComment);
  const std::string tail = file.read(tail_at, size - tail_at);
  const std::size_t end = tail.rfind(kEnd);
  if (end == std::string::npos || tail.size() - end < kEndBytes) file.fail("is not an archive of arrays");
  std::uint64_t at = number_at<std::uint32_t>(tail, end + 16);
  for (int left = number_at<std::uint16_t>(tail, end + 10); left > 0; --left) {
    const std::string record = file.read(at, kCentralBytes);
    if (record.compare(0, 4, kCentral) != 0) file.fail("is damaged: its directory is cut");
    const auto name_bytes = number_at<std::uint16_t>(record, 28);
    std::string name = file.read(at + kCentralBytes, name_bytes);
    if (ends_with(name, ".npy")) name.resize(name.size() - 4);
    if (number_at<std::uint16_t>(record, 10) != 0)
      file.fail("array '" + name + "' is compressed; try numpy.savez, which leaves arrays as they are");
    try {
      Entry entry =
          file.parse_array(number_at<std::uint32_t>(record, 42), number_at<std::uint32_t>(record, 24));
      entry.sum = number_at<std::uint32_t>(record, 16);
      if (!file.entries_.emplace(name, std::move(entry)).second) throw CheckpointError("it is there twice");
    } catch (const CheckpointError& error) {
      file.fail("array '" + name + "' is damaged: " + error.what());
    }
    at += kCentralBytes + name_bytes + number_at<std::uint16_t>(record, 30) +
          number_at<std::uint16_t>(record, 32);
  }
  return file;
}

NpzFile::Entry NpzFile::parse_array(std::uint64_t at, std::uint64_t bytes) const {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw CheckpointError(what);
  };
  const std::string local = read(at, kLocalBytes);
  require(local.compare(0, 4, kLocal) == 0, "it is not where the directory says");
  at += kLocalBytes + number_at<std::uint16_t>(local, 26) + number_at<std::uint16_t>(local, 28);
  std::string header = read(at, std::min<std::uint64_t>(bytes, 12));
  require(header.size() == 12 && header.compare(0, 6, kNpy) == 0, "it is not of NumPy's format");
  const bool is_old = header[6] == 1;  // with two bytes for the length, later four
  const std::uint64_t length = is_old ? 10u + number_at<std::uint16_t>(header, 8)
                                      : std::uint64_t{12} + number_at<std::uint32_t>(header, 8);
  require(length <= bytes, "its header does not end");
  header = read(at, length);
  Entry entry;
  entry.type = value_after(header, "'descr': '", "'");
  entry.by_columns = value_after(header, "'fortran_order': ", ",") != "False";
  entry.sizes = sizes_in(value_after(header, "'shape': (", ")"));
  entry.data_at = at + length;
  entry.bytes = bytes - length;
  entry.sum_of_header = zip_sum(header);
  Index expected = entry.type.empty() ? 0 : entry.type.back() - '0';
  for (const Index size : entry.sizes)
    require(!__builtin_mul_overflow(expected, size, &expected), "its shape overflows");
  require(static_cast<std::uint64_t>(expected) == entry.bytes, "its shape does not fit its data");
  return entry;
}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const NpzFile::Entry& NpzFile::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) fail("has no array '" + name + "'");
  return found->second;
}

void NpzFile::read_data(const std::string& name, const Entry& entry, void* to) const {
  file_.read(entry.data_at, entry.bytes, to);
  if (zip_sum({static_cast<const char*>(to), entry.bytes}, entry.sum_of_header) != entry.sum)
    fail("array '" + name + "' is damaged: it does not have the checksum that was written");
}

Tensor NpzFile::tensor(const std::string& name) const {
  const Entry& found = entry(name);
  if ((found.type != "<f4" && found.type != "<f8") || found.by_columns ||
      found.sizes.size() > Shape::kMaxRank)
    fail(format("array '{}' is of type {}{} with {} axes; try one of type <f4 in C's order", name, found.type,
                found.by_columns ? " in Fortran's order" : "", found.sizes.size()));
  const Shape shape(found.sizes.data(), static_cast<int>(found.sizes.size()));
  const Tensor x = Tensor::empty(shape, found.type == "<f4" ? DType::f32 : DType::f64, Device::cpu());
  read_data(name, found, x.raw());
  return x.to(default_device());
}

std::string NpzFile::bytes(const std::string& name) const {
  const Entry& found = entry(name);
  if (found.type != "|i1" && found.type != "|u1")
    fail(format("array '{}' is of type {}; try one of bytes", name, found.type));
  std::string bytes(found.bytes, '\0');
  read_data(name, found, bytes.data());
  return bytes;
}

void save_npz(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
              const std::vector<std::pair<std::string, std::string>>& texts) {
  NpzWriter writer(path);
  for (const auto& [name, tensor] : tensors) {
    const Tensor x = tensor.to(Device::cpu());
    writer.add(name,
               npy_header(x.dtype() == DType::f64 ? "<f8" : "<f4", {x.shape().begin(), x.shape().end()}),
               {static_cast<const char*>(x.raw()), static_cast<std::size_t>(x.bytes())});
  }
  for (const auto& [name, text] : texts)
    writer.add(name, npy_header("|i1", {static_cast<Index>(text.size())}), text);
  writer.finish();
}

}  // namespace tapeformer
