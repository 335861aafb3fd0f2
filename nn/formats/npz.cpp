#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/nn/formats/little_endian.h>
#include <tapeformer/nn/formats/npz.h>
#include <tapeformer/nn/formats/strict_json.h>
#include <tapeformer/nn/formats/zip.h>

namespace tapeformer {
namespace {

constexpr std::string_view kNpy = "\x93NUMPY", kEnding = ".npy";
constexpr std::uint64_t kMostZipBytes = 0xffffffff, kMostZipFiles = 0xffff;  // of a written archive

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
NpzArray parse_npy(const std::string& npy) {
  const bool is_npy = npy.size() >= 12 && npy.compare(0, kNpy.size(), kNpy) == 0;
  const std::size_t data_at = !is_npy ? npy.npos
                              : npy[6] == 1
                                  ? 10 + number_at<std::uint16_t>(npy, 8)  // later versions have four
                                  : std::size_t{12} + number_at<std::uint32_t>(npy, 8);
  if (data_at > npy.size()) throw CheckpointError("is damaged");
  const std::string header = npy.substr(0, data_at), data = npy.substr(data_at);
  std::string type = value_after(header, "'descr': '", '\'');
  if (type == "<i1") type = "|i1";  // Marian gives bytes an order
  const bool by_rows = value_after(header, "'fortran_order': ", ',') == "False";
  if (!by_rows || (type != "<f4" && type != "|i1"))
    throw CheckpointError(
        format("must be <f4 or |i1 in C's order; got {}{}", type, by_rows ? "" : " in Fortran's"));
  const Shape shape = shape_in(value_after(header, "'shape': (", ')'));
  if (static_cast<std::uint64_t>(shape.elements()) * (type == "<f4" ? 4 : 1) != data.size())
    throw CheckpointError("is damaged: its shape does not fit its data");
  return {type, shape, data};
}

/// The inverse of parse_npy(): a header that fills whole blocks of 64 bytes, and the data.
std::string npy_of(const NpzArray& array) {
  std::string text = "{'descr': '" + array.type + "', 'fortran_order': False, 'shape': (";
  for (const Index size : array.shape) text += std::to_string(size) + ",";
  if (array.shape.rank() > 1) text.pop_back();  // with a comma at the end, Marian takes the first size alone
  text += "), }";
  constexpr std::size_t kBefore = 10;
  text.resize((kBefore + text.size()) / 64 * 64 + 64 - kBefore - 1, ' ');
  std::string bytes = std::string(kNpy) + std::string("\1\0", 2);
  put(bytes, static_cast<std::uint16_t>(text.size() + 1));
  return bytes + text + "\n" + array.data;
}

}  // namespace

NpzArrays load_npz(const std::string& path) {
  const OpenedFile<CheckpointError> file(path);
  NpzArrays arrays;
  std::uint64_t read = 0;
  return naming(path, [&] {
    for (const ZipEntry& entry : zip_entries(file)) {
      const std::string name = entry.name.substr(0, entry.name.rfind(kEnding));
      if ((read += entry.bytes) > file.size()) throw CheckpointError("'" + name + "' overlaps another array");
      const std::string npy = bytes_at(file, entry.at, entry.bytes);
      arrays[name] = naming("array '" + name + "'", [&] { return parse_npy(npy); });
      if (zip_sum(npy) != entry.sum) throw CheckpointError("array '" + name + "': is damaged");
    }
    return arrays;
  });
}

void save_npz(const std::string& path, const NpzArrays& arrays) {
  if (arrays.size() > kMostZipFiles) throw CheckpointError(path + ": would have more than 65,535 arrays");
  AtomicFile<CheckpointError> file(path);
  std::string directory;
  std::uint64_t end = 0;
  const auto append = [&](const std::string& bytes) { file.append(bytes), end += bytes.size(); };
  const auto put_size = [&](std::string& record, std::uint64_t size) {
    if (size > kMostZipBytes) throw CheckpointError(path + ": would have more than 4 GiB");
    put(record, static_cast<std::uint32_t>(size));
  };
  for (const auto& [name, array] : arrays) {
    const std::string npy = npy_of(array), file_name = name + std::string(kEnding);
    std::string record;
    for (const int value : {20, 0, 0, 0, 0x21})  // version, flags, stored, midnight, 1 January 1980
      put(record, static_cast<std::uint16_t>(value));
    put(record, zip_sum(npy));
    for (const std::size_t size : {npy.size(), npy.size(), file_name.size()}) put_size(record, size);
    directory.append(kZipCentral).append("\24\0", 2).append(record).append(10, '\0');
    put_size(directory, end);
    directory += file_name;
    append(std::string(kZipLocal) + record + file_name);
    append(npy);
  }
  const std::size_t directory_at = end, directory_bytes = directory.size();
  directory.append(kZipEnd).append(4, '\0');
  for (int i = 0; i < 2; ++i) put(directory, static_cast<std::uint16_t>(arrays.size()));
  put_size(directory, directory_bytes), put_size(directory, directory_at);
  append(directory.append(2, '\0'));
  file.finish();
}

}  // namespace tapeformer
