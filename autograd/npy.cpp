#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/npy.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

// xtensor's own reader is not used: it takes a truncated file for a full one, and misreads a header length
// whose low byte is above 127.

namespace tapeformer {
namespace {

const std::string kMagic = "\x93NUMPY";
constexpr std::size_t kMostHeader = 4096;  // eight sizes need less than 300 characters

struct Layout {
  Shape shape;
  DType type = DType::f32;
};

const char* description(DType type) {
  switch (type) {
    case DType::f32: return "<f4";
    case DType::f64: return "<f8";
    case DType::bf16: return "<f4";  // NumPy has no such type: save_npy() widens
    case DType::i32: return "<i4";
    case DType::boolean: return "|b1";
  }
  return "";
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(path, std::ios::binary) {
    if (!file_) fail(std::string("cannot be opened: ") + std::strerror(errno));
    file_.seekg(0, std::ios::end);
    left_ = static_cast<std::size_t>(std::max<std::streamoff>(file_.tellg(), 0));
    file_.seekg(0);
  }

  [[noreturn]] void fail(const std::string& what) const { throw DataError(path_, 0, what); }

  void read(void* to, std::size_t bytes, const char* what) {
    if (bytes > left_ || !file_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes))) {
      fail(std::string("the file ends inside its ") + what);
    }
    left_ -= bytes;
  }
  std::string text(std::size_t bytes, const char* what) {
    std::string result(bytes, '\0');
    read(result.data(), bytes, what);
    return result;
  }
  std::size_t left() const { return left_; }

 private:
  std::string path_;
  std::ifstream file_;
  std::size_t left_ = 0;
};

std::string read_header(Reader& reader) {
  if (reader.left() < kMagic.size() || reader.text(kMagic.size(), "magic string") != kMagic) {
    reader.fail("is not a NumPy file: it does not start with \\x93NUMPY");
  }
  const int version = reader.text(2, "version")[0];
  if (version < 1 || version > 3)
    reader.fail("NumPy format version " + std::to_string(version) + " is not known");
  std::size_t length = 0;
  const std::string bytes = reader.text(version == 1 ? 2 : 4, "header length");
  for (std::size_t i = bytes.size(); i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  if (length > kMostHeader)
    reader.fail("has a header of " + std::to_string(length) + " bytes; at most 4096 are read");
  return reader.text(length, "header");
}

/// The value of a key, where value_at(text) finds it at the beginning of what follows the colon.
template <class ValueAt>
std::string field(const Reader& reader, const std::string& header, const char* name,
                  const ValueAt& value_at) {
  const std::string key = std::string("'") + name + "'";
  const auto skip_spaces = [&](std::size_t at) {
    return std::min(header.find_first_not_of(" \t\n\v\f\r", at), header.size());
  };
  for (std::size_t at = header.find(key); at != std::string::npos; at = header.find(key, at + 1)) {
    const std::size_t colon = skip_spaces(at + key.size());
    if (header.compare(colon, 1, ":") != 0) continue;
    if (const std::optional<std::string> value = value_at(header.substr(skip_spaces(colon + 1))))
      return *value;
  }
  reader.fail(std::string("has a header without a valid '") + name + "': " + header);
}

std::optional<std::string> quoted(const std::string& text) {
  const std::size_t end = text.find('\'', 1);
  if (text.compare(0, 1, "'") != 0 || end == std::string::npos) return {};
  return text.substr(1, end - 1);
}

std::optional<std::string> truth(const std::string& text) {
  for (const std::string word : {"True", "False"})
    if (text.compare(0, word.size(), word) == 0) return word;
  return {};
}

/// Sizes in parentheses.
std::optional<std::string> tuple(const std::string& text) {
  const std::size_t end = text.find_first_not_of("0123456789, ", 1);
  if (text.compare(0, 1, "(") != 0 || end == std::string::npos || text[end] != ')') return {};
  return text.substr(1, end - 1);
}

Layout parse(const Reader& reader, const std::string& header) {
  Layout layout;
  const std::string descr = field(reader, header, "descr", quoted);
  const DType known[] = {DType::f32, DType::f64, DType::i32, DType::boolean};
  const auto* const found = std::find_if(std::begin(known), std::end(known),
                                         [&](DType type) { return descr == description(type); });
  if (found == std::end(known)) {
    reader.fail("elements must be <f4, <f8, <i4 or |b1; got " + descr + "; try numpy's astype");
  }
  layout.type = *found;
  const std::string order = field(reader, header, "fortran_order", truth);
  const std::string sizes = field(reader, header, "shape", tuple);
  Index elements = 1;
  const char* at = sizes.c_str();
  while (*(at += std::strcspn(at, "0123456789")) != '\0') {
    char* end = nullptr;
    errno = 0;
    const Index size = std::strtoll(at, &end, 10);
    at = end;
    if (errno != 0 || layout.shape.rank() == Shape::kMaxRank ||
        __builtin_mul_overflow(elements, std::max<Index>(size, 1), &elements) ||
        elements > (Index{1} << 60)) {
      reader.fail("shape (" + sizes + ") is too large");
    }
    layout.shape.append(size);
  }
  if (order == "True" && layout.shape.rank() > 1) {
    reader.fail("is in Fortran order; try numpy.ascontiguousarray before saving");
  }
  return layout;
}

}  // namespace

Tensor load_npy(const std::string& path) {
  Reader reader(path);
  const Layout layout = parse(reader, read_header(reader));
  const auto bytes = static_cast<std::size_t>(layout.shape.elements() * bytes_of(layout.type));
  if (reader.left() != bytes) {
    reader.fail(name_of(layout.type) + layout.shape.text() + " takes " + std::to_string(bytes) +
                " bytes; the file has " + std::to_string(reader.left()));
  }
  const Tensor x = Tensor::empty(layout.shape, layout.type, Device::cpu());
  reader.read(x.raw(), bytes, "data");
  const auto* const byte = static_cast<const unsigned char*>(x.raw());
  if (layout.type == DType::boolean &&
      std::any_of(byte, byte + bytes, [](unsigned char b) { return b > 1; })) {
    reader.fail("a bool must be 0 or 1");
  }
  return x.to(default_device());
}

void save_npy(const std::string& path, const Tensor& values) {
  const Tensor x = values.to(Device::cpu()).to(wide(values.dtype()));
  std::string header =
      std::string("{'descr': '") + description(x.dtype()) + "', 'fortran_order': False, 'shape': (";
  for (const Index size : x.shape()) header += std::to_string(size) + ",";
  header += "), }";
  header.resize((header.size() + 10) / 64 * 64 + 64 - 10 - 1, ' ');  // the data starts at a multiple of 64
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file << kMagic << '\1' << '\0' << static_cast<char>(header.size() & 255)
       << static_cast<char>(header.size() >> 8) << header;
  file.write(static_cast<const char*>(x.raw()), static_cast<std::streamsize>(x.bytes()));
  file.close();
  if (!file) throw DataError(path, 0, std::string("cannot be written: ") + std::strerror(errno));
}

}  // namespace tapeformer
