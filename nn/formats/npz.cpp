#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/nn/formats/little_endian.h>
#include <tapeformer/nn/formats/npz.h>

#include <algorithm>

namespace tapeformer {
namespace {

// Records of a zip archive: their marks, and their sizes without names.
constexpr std::string_view kLocal = "PK\3\4", kCentral = "PK\1\2", kEnd = "PK\5\6";
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;
constexpr std::string_view kNpy = "\x93NUMPY", kEnding = ".npy";
constexpr std::uint64_t kMostBytes = 0xffffffff;

/// The checksum of a zip archive, CRC-32.
std::uint32_t zip_sum(std::string_view bytes) {
  constexpr std::uint32_t kRemainders[] = {
      0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
      0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
  std::uint32_t sum = ~0u;
  for (const char c : bytes) {
    sum ^= static_cast<unsigned char>(c);
    for (int half = 0; half < 2; ++half) sum = kRemainders[sum & 15] ^ sum >> 4;
  }
  return ~sum;
}

/// `count` bytes, which begin with `mark`.
std::string_view part(std::string_view all, std::uint64_t at, std::uint64_t count,
                      std::string_view mark = {}) {
  if (at > all.size() || count > all.size() - at || all.substr(at, mark.size()) != mark)
    throw CheckpointError("is damaged");
  return all.substr(at, count);
}

template <class Number>
std::uint64_t field(std::string_view record, std::size_t at) {
  return number_at<Number>(std::string(part(record, at, sizeof(Number))), 0);
}

/// The text after `key` in the header of an array, up to `end`; empty if there is none.
std::string value_after(std::string_view header, std::string_view key, char end) {
  const std::size_t found = header.find(key), from = found + key.size();
  return found == header.npos ? "" : std::string(header.substr(from, header.find(end, from) - from));
}

Shape shape_in(const std::string& list) {
  constexpr std::size_t kMostDigits = 18;
  Shape shape;
  for (std::size_t at = 0; (at = list.find_first_of("0123456789", at)) != list.npos;
       at = list.find_first_not_of("0123456789", at))
    shape.append(std::stoll(list.substr(at, kMostDigits)));
  return shape;
}

/// An array in NumPy's format.
NpzArray parse_npy(std::string_view npy) {
  const bool is_old = part(npy, 0, 12, kNpy)[6] == 1;  // with two bytes for the length, later four
  const auto data_at = is_old ? 10 + field<std::uint16_t>(npy, 8) : 12 + field<std::uint32_t>(npy, 8);
  const std::string_view header = part(npy, 0, data_at), data = npy.substr(data_at);
  const std::string type = value_after(header, "'descr': '", '\'');
  const bool by_rows = value_after(header, "'fortran_order': ", ',') == "False";
  if (!by_rows || (type != "<f4" && type != "|i1"))
    throw CheckpointError(
        format("must be <f4 or |i1 in C's order; got {}{}", type, by_rows ? "" : " in Fortran's"));
  const Shape shape = shape_in(value_after(header, "'shape': (", ')'));
  if (static_cast<std::uint64_t>(shape.elements()) * (type == "<f4" ? 4 : 1) != data.size())
    throw CheckpointError("is damaged: its shape does not fit its data");
  return {type, shape, std::string(data)};
}

/// The opposite: a header that fills whole blocks of 64 bytes, and the data.
std::string npy_of(const NpzArray& array) {
  std::string text = "{'descr': '" + array.type + "', 'fortran_order': False, 'shape': (";
  for (const Index size : array.shape) text += std::to_string(size) + ",";
  text += "), }";
  constexpr std::size_t kBefore = 10;
  text.resize((kBefore + text.size()) / 64 * 64 + 64 - kBefore - 1, ' ');
  std::string bytes = std::string(kNpy) + std::string("\1\0", 2);
  put(bytes, static_cast<std::uint16_t>(text.size() + 1));
  return bytes + text + "\n" + array.data;
}

}  // namespace

NpzArrays load_npz(const std::string& path) {
  const std::string content = read_file<CheckpointError>(path, kMostBytes);
  const std::string_view all = content;
  const std::size_t end = all.rfind(kEnd);
  if (end == all.npos || all.size() - end < kEndBytes)
    throw CheckpointError(path + ": is not an archive of arrays");
  NpzArrays arrays;
  std::string name = "(unknown)";
  std::size_t read = 0;
  try {
    std::uint64_t at = field<std::uint32_t>(all, end + 16);
    for (auto left = field<std::uint16_t>(all, end + 10); left > 0; --left) {
      const std::string_view record = part(all, at, kCentralBytes, kCentral);
      const auto name_bytes = field<std::uint16_t>(record, 28);
      name = part(all, at + kCentralBytes, name_bytes);
      name.resize(std::min(name.size(), name.rfind(kEnding)));
      at += kCentralBytes + name_bytes + field<std::uint16_t>(record, 30) + field<std::uint16_t>(record, 32);
      if (field<std::uint16_t>(record, 10) != 0) throw CheckpointError("is compressed; try numpy.savez");
      const auto local_at = field<std::uint32_t>(record, 42);
      const std::string_view local = part(all, local_at, kLocalBytes, kLocal);
      const auto before = kLocalBytes + field<std::uint16_t>(local, 26) + field<std::uint16_t>(local, 28);
      const std::string_view npy = part(all, local_at + before, field<std::uint32_t>(record, 24));
      if ((read += npy.size()) > all.size()) throw CheckpointError("overlaps another one");
      arrays[name] = parse_npy(npy);
      if (zip_sum(npy) != field<std::uint32_t>(record, 16)) throw CheckpointError("is damaged");
    }
  } catch (const Error& error) {
    throw CheckpointError(format("{}: array '{}' {}", path, name, error.what()));
  }
  return arrays;
}

void save_npz(const std::string& path, const NpzArrays& arrays) {
  AtomicFile<CheckpointError> file(path);
  std::string directory;
  std::uint64_t end = 0;
  const auto append = [&](const std::string& bytes) { file.append(bytes), end += bytes.size(); };
  const auto put_size = [&](std::string& record, std::uint64_t size) {
    if (size > kMostBytes) throw CheckpointError(path + ": would have more than 4 GiB");
    put(record, static_cast<std::uint32_t>(size));
  };
  for (const auto& [name, array] : arrays) {
    const std::string npy = npy_of(array), file_name = name + std::string(kEnding);
    std::string record;
    for (const int value : {20, 0, 0, 0, 0x21})  // version, flags, stored, midnight, 1 January 1980
      put(record, static_cast<std::uint16_t>(value));
    put(record, zip_sum(npy));
    for (const std::size_t size : {npy.size(), npy.size(), file_name.size()}) put_size(record, size);
    directory.append(kCentral).append("\24\0", 2).append(record).append(10, '\0');
    put_size(directory, end);
    directory += file_name;
    append(std::string(kLocal) + record + file_name);
    append(npy);
  }
  const std::size_t directory_at = end, directory_bytes = directory.size();
  directory.append(kEnd).append(4, '\0');
  for (int i = 0; i < 2; ++i) put(directory, static_cast<std::uint16_t>(arrays.size()));
  put_size(directory, directory_bytes), put_size(directory, directory_at);
  append(directory.append(2, '\0'));
  file.finish();
}

}  // namespace tapeformer
