#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/safetensors.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kPrefix = 8;                // the header's length, little-endian
constexpr std::size_t kMostHeader = 100'000'000;  // as in the reference implementation
constexpr std::size_t kPiece = 1 << 18;           // bytes per read, a multiple of a word's
constexpr const char* kMetadata = "__metadata__";
// Our own entries in the metadata. A changed byte changes the sum, or hides at most one of the two entries.
constexpr const char *kFormat = "tapeformer_format", *kFormatNow = "2";
constexpr const char* kFileChecksum = "file_checksum";  // of the whole file, with zeros in its own place
constexpr const char* kDataChecksum = "checksum";       // in files before format 2: of the data alone
constexpr const char* kNoSum = "0000000000000000";

/// The bytes of an element, by the format's name of its type; 0 for an unknown name.
Index bytes_of_type(const std::string& type) {
  static const std::map<std::string, Index> kBytes{
      {"BOOL", 1},    {"U8", 1},      {"I8", 1},          {"I16", 2},        {"U16", 2},
      {"I32", 4},     {"U32", 4},     {"I64", 8},         {"U64", 8},        {"F16", 2},
      {"BF16", 2},    {"F32", 4},     {"F64", 8},         {"C64", 8},        {"F8_E4M3", 1},
      {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}};
  const auto found = kBytes.find(type);
  return found == kBytes.end() ? 0 : found->second;
}

/// The format's name of a type: "F32", "BOOL".
std::string dtype_name(DType type) {
  std::string name = name_of(type);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

float from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float magnitude =
      std::ldexp(static_cast<float>(fraction + (exponent > 0 ? 1024 : 0)), std::max(exponent, 1) - 25);
  if (exponent == 31)
    magnitude =
        fraction != 0 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  return bits >> 15 != 0 ? -magnitude : magnitude;
}

/// An array of counts of at most 2^62. Throws: CheckpointError if it is something else.
std::vector<Index> parse_counts(const Json& tensor, const char* key) {
  std::vector<Index> counts;
  if (!tensor.contains(key) || !tensor[key].is_array())
    throw CheckpointError(format("has no array '{}'", key));
  for (const Json& count : tensor[key]) {
    if (!count.is_number_unsigned() || count.get<std::uint64_t>() > std::uint64_t{1} << 62)
      throw CheckpointError(format("has {} in '{}'", count.dump(), key));
    counts.push_back(count.get<Index>());
  }
  return counts;
}

/// The place of the file's sum in a header that we wrote; npos in others.
std::size_t place_of_sum(std::string_view header) {
  const std::string before = "\"" + std::string(kFileChecksum) + "\":\"";
  const std::size_t found = header.find(before);
  return found == std::string_view::npos ? found : found + before.size();
}

std::string hexadecimal(std::uint64_t sum) { return format("{:016x}", sum); }

}  // namespace

void SafetensorsFile::fail(const std::string& what) const { throw CheckpointError(path() + ": " + what); }

void SafetensorsFile::fail_as_damaged(const std::string& what) const {
  throw DamagedFile(path() + ": is damaged: " + what);
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file(path);
  const std::size_t size = file.file_.size();
  if (size < kPrefix) file.fail_as_damaged(format("{} bytes are too few for a safetensors file", size));
  std::uint64_t length = 0;
  file.file_.read(0, kPrefix, &length);
  if (length > kMostHeader || length > size - kPrefix)
    file.fail_as_damaged(
        format("it has {} bytes, too few for its header, or a header that is too long", size));
  file.data_at_ = kPrefix + length;
  std::string header(file.data_at_, '\0');
  file.file_.read(0, header.size(), header.data());
  try {
    file.parse_header(std::string_view(header).substr(kPrefix), size - file.data_at_);
    file.check_layout(size - file.data_at_);
  } catch (const CheckpointError& error) {
    file.fail_as_damaged(error.what());
  }
  file.check_sum(header);
  const auto version = file.metadata_.find(kFormat);
  if (version != file.metadata_.end() && version->second != kFormatNow)
    file.fail(format("is of format {}, and this version reads up to {}; try the version that wrote it",
                     version->second, kFormatNow));
  for (const char* own : {kFormat, kFileChecksum, kDataChecksum}) file.metadata_.erase(own);
  return file;
}

/// The size in bytes of a tensor of this type and shape. Throws: CheckpointError if it overflows
std::size_t SafetensorsFile::bytes_of_shape(const std::string& type, const std::vector<Index>& sizes) {
  Index bytes = bytes_of_type(type);
  for (const Index size : sizes)
    if (__builtin_mul_overflow(bytes, size, &bytes)) throw CheckpointError("has a shape that overflows");
  return static_cast<std::size_t>(bytes);
}

void SafetensorsFile::parse_header(std::string_view text, std::size_t data_bytes) {
  const Json header = parse_json(text, "its header", 3);
  if (!header.is_object()) throw CheckpointError("its header is not an object");
  for (const auto& [name, value] : header.items()) {
    if (!value.is_object()) throw CheckpointError("'" + name + "' is not an object");
    if (name == kMetadata) {
      for (const auto& [key, content] : value.items()) {
        if (!content.is_string()) throw CheckpointError("its metadata '" + key + "' is not a string");
        metadata_[key] = content.get<std::string>();
      }
      continue;
    }
    try {
      Entry entry;
      entry.name = name;
      if (value.contains("dtype") && value["dtype"].is_string())
        entry.dtype = value["dtype"].get<std::string>();
      if (bytes_of_type(entry.dtype) == 0)
        throw CheckpointError("has the unknown type '" + entry.dtype + "'");
      entry.sizes = parse_counts(value, "shape");
      const std::vector<Index> offsets = parse_counts(value, "data_offsets");
      const std::size_t bytes = bytes_of_shape(entry.dtype, entry.sizes);
      if (offsets.size() != 2) throw CheckpointError("needs two 'data_offsets'");
      entry.begin = static_cast<std::size_t>(offsets[0]), entry.end = static_cast<std::size_t>(offsets[1]);
      if (entry.begin > entry.end || entry.end > data_bytes || entry.end - entry.begin != bytes)
        throw CheckpointError(format("is {}{} and lies at [{},{}) of {} bytes of data", entry.dtype,
                                     value["shape"].dump(), entry.begin, entry.end, data_bytes));
      entries_.push_back(std::move(entry));
    } catch (const CheckpointError& error) {
      throw CheckpointError("tensor '" + name + "' " + error.what());
    }
  }
}

void SafetensorsFile::check_layout(std::size_t data_bytes) {
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::make_pair(a.begin, a.end) < std::make_pair(b.begin, b.end);
  });
  std::size_t end = 0;
  for (const Entry& entry : entries_) {
    if (entry.begin != end)
      throw CheckpointError(format("tensor '{}' begins at byte {}, and the one before it ends at {}",
                                   entry.name, entry.begin, end));
    by_name_[entry.name] = static_cast<std::size_t>(&entry - entries_.data());
    end = entry.end;
  }
  if (end != data_bytes)
    throw CheckpointError(format("the tensors end at byte {} of {} bytes of data", end, data_bytes));
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

const SafetensorsFile::Entry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) fail("has no tensor '" + name + "'");
  return entries_[found->second];
}

Shape SafetensorsFile::shape(const std::string& name) const {
  const std::vector<Index>& sizes = entry(name).sizes;
  try {
    return Shape(sizes.data(), static_cast<int>(sizes.size()));
  } catch (const ShapeError& error) {
    fail("tensor '" + name + "' has an unsupported shape: " + error.what());
  }
}

Tensor SafetensorsFile::tensor(const std::string& name) const {
  const Entry& entry = this->entry(name);
  const Shape shape = this->shape(name);
  const std::size_t from = data_at_ + entry.begin;
  const auto copy = [&](DType type) {
    const Tensor x = Tensor::empty(shape, type, Device::cpu());
    file_.read(from, entry.end - entry.begin, x.raw());
    return x.to(default_device());
  };
  /// Sets to[i] to convert(the i-th Source), as T.
  const auto widen = [&](auto source, auto to, const auto& convert) {
    using Source = decltype(source);
    const Tensor x = Tensor::empty(shape, dtype_of<decltype(to)>(), Device::cpu());
    auto* const values = x.data<decltype(to)>();
    const auto elements = static_cast<std::size_t>(x.elements());
    std::vector<Source> piece(std::min(elements, kPiece / sizeof(Source)));
    for (std::size_t done = 0; done < elements; done += piece.size()) {
      const std::size_t count = std::min(piece.size(), elements - done);
      file_.read(from + done * sizeof(Source), count * sizeof(Source), piece.data());
      std::transform(piece.begin(), piece.begin() + static_cast<Index>(count), values + done, convert);
    }
    return x.to(default_device());
  };
  if (entry.dtype == "F32") return copy(DType::f32);
  if (entry.dtype == "F64") return copy(DType::f64);
  if (entry.dtype == "I32") return copy(DType::i32);
  if (entry.dtype == "F16") return widen(std::uint16_t{}, float{}, from_half);
  if (entry.dtype == "BF16")
    return widen(BFloat16{}, float{}, [](BFloat16 x) { return static_cast<float>(x); });
  if (entry.dtype == "U8") return widen(std::uint8_t{}, std::int32_t{}, [](std::uint8_t x) { return x; });
  if (entry.dtype == "BOOL") {
    return widen(std::uint8_t{}, bool{}, [&](std::uint8_t x) {
      if (x > 1) fail_as_damaged("tensor '" + name + "' has a bool of value " + std::to_string(x));
      return x == 1;
    });
  }
  if (entry.dtype == "I64") {
    return widen(std::int64_t{}, std::int32_t{}, [&](std::int64_t x) {
      const auto narrow = static_cast<std::int32_t>(x);
      if (narrow != x) fail(format("tensor '{}' has {}, which does not fit an i32", name, x));
      return narrow;
    });
  }
  fail(format("tensor '{}' is of type {}, which is not supported; try a file that has it as F32 or BF16",
              name, entry.dtype));
}

void SafetensorsFile::check_sum(std::string header) {
  const auto of_file = metadata_.find(kFileChecksum), of_data = metadata_.find(kDataChecksum);
  const bool is_whole = of_file != metadata_.end() || metadata_.count(kFormat) > 0;
  if (!is_whole && of_data == metadata_.end()) return;  // another program's file
  std::uint64_t sum = 0;
  if (is_whole) {
    const std::size_t place = place_of_sum(header);
    if (of_file == metadata_.end() || place == std::string::npos)
      fail_as_damaged("its header has no checksum");
    header.replace(place, std::strlen(kNoSum), kNoSum);
    sum = checksum(header.data(), header.size());
  }
  std::vector<char> piece(kPiece);
  for (const Entry& entry : entries_) {
    for (std::size_t at = entry.begin; at < entry.end; at += kPiece) {
      const std::size_t count = std::min(kPiece, entry.end - at);
      file_.read(data_at_ + at, count, piece.data());
      sum = checksum(piece.data(), count, sum);
    }
  }
  if (is_whole ? of_file->second != hexadecimal(sum) : of_data->second != std::to_string(sum))
    fail_as_damaged("its checksum does not match");
}

void save_safetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<const std::pair<std::string, Tensor>*> ordered;
  for (const auto& tensor : tensors) ordered.push_back(&tensor);
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto* a, const auto* b) {
    return bytes_of(a->second.dtype()) > bytes_of(b->second.dtype());
  });
  Json header = Json::object();
  std::set<std::string> names{kMetadata};
  std::vector<std::string_view> parts(1);
  std::vector<Tensor> here;  // owns the memory of `parts`
  Index end = 0;
  header[kMetadata] = metadata;
  header[kMetadata][kFormat] = kFormatNow;
  header[kMetadata][kFileChecksum] = kNoSum;
  for (const auto* const tensor : ordered) {
    const auto& [name, x] = *tensor;
    if (!names.insert(name).second)
      throw CheckpointError(path + ": the name '" + name + "' is given twice or reserved");
    header[name] = {{"dtype", dtype_name(x.dtype())},
                    {"shape", std::vector<Index>(x.shape().begin(), x.shape().end())},
                    {"data_offsets", {end, end + x.bytes()}}};
    here.push_back(x.to(Device::cpu()));
    parts.emplace_back(static_cast<const char*>(here.back().raw()), static_cast<std::size_t>(x.bytes()));
    end += x.bytes();
  }
  std::string text(kPrefix, '\0');
  try {
    text += header.dump();
  } catch (const Json::exception& error) {
    throw CheckpointError(path + ": a name or the metadata cannot be written: " + reason_of(error));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size() - kPrefix;
  std::memcpy(text.data(), &length, kPrefix);
  parts[0] = text;
  std::uint64_t sum = 0;
  for (const std::string_view part : parts) sum = checksum(part.data(), part.size(), sum);
  text.replace(place_of_sum(text), std::strlen(kNoSum), hexadecimal(sum));
  write_atomically(path, parts);
}

}  // namespace tapeformer
