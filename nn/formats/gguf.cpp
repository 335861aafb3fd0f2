#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/nn/formats/gguf.h>
#include <tapeformer/nn/formats/little_endian.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tapeformer {
namespace {

constexpr std::uint32_t kVersion = 3;
constexpr std::uint64_t kAlignment = 32;
constexpr Index kBlock = 32;  // values of Q8_0 that share a scale

using tapeformer::put;

void put(std::string& bytes, const std::string& text) {
  put(bytes, static_cast<std::uint64_t>(text.size()));
  bytes += text;
}

void put(std::string& bytes, bool flag) { bytes += flag ? '\1' : '\0'; }

constexpr std::uint32_t kArray = 9;

template <class Value>
constexpr std::uint32_t type_of() {
  if constexpr (std::is_same_v<Value, std::uint8_t>) return 0;
  if constexpr (std::is_same_v<Value, std::uint32_t>) return 4;
  if constexpr (std::is_same_v<Value, std::int32_t>) return 5;
  if constexpr (std::is_same_v<Value, float>) return 6;
  if constexpr (std::is_same_v<Value, bool>) return 7;
  if constexpr (std::is_same_v<Value, std::string>) return 8;
}

template <class Value>
void put_typed(std::string& bytes, const Value& value) {
  put(bytes, type_of<Value>());
  put(bytes, value);
}

template <class Value>
void put_typed(std::string& bytes, const std::vector<Value>& values) {
  put(bytes, kArray);
  put(bytes, type_of<Value>());
  put(bytes, static_cast<std::uint64_t>(values.size()));
  for (const Value& value : values) put(bytes, value);
}

GgufType stored_type(const GgufTensor& tensor) {
  const bool whole = tensor.value.rank() > 0 && tensor.value.size(tensor.value.rank() - 1) % kBlock == 0;
  return tensor.type == GgufType::q8_0 && !whole ? GgufType::f16 : tensor.type;
}

/// The format's number of a type, and the bytes of one block of `values` values.
struct TypeLayout {
  std::uint32_t number;
  Index values, bytes;
};

const TypeLayout& layout_of(GgufType type) {
  static constexpr TypeLayout kLayouts[] = {{0, 1, 4}, {1, 1, 2}, {8, kBlock, 2 + kBlock}};
  return kLayouts[static_cast<int>(type)];
}

std::uint64_t stored_bytes(const GgufTensor& tensor) {
  const TypeLayout& layout = layout_of(stored_type(tensor));
  return static_cast<std::uint64_t>(tensor.value.elements() / layout.values * layout.bytes);
}

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// Throws:  CheckpointError naming `where` if x is beyond half precision
std::uint16_t checked_half(const std::string& where, float x) {
  const std::uint16_t half = to_half(x);
  if (std::isfinite(x) && (half & 0x7fff) == 0x7c00)
    throw CheckpointError(format("{} has {}, which half precision cannot hold; try --type f32", where, x));
  return half;
}

/// The stored form of `count` values, a multiple of kBlock for Q8_0.
std::string encoded(const std::string& where, const float* x, Index count, GgufType type) {
  std::string bytes;
  if (type == GgufType::f32)
    return {reinterpret_cast<const char*>(x), sizeof(float) * static_cast<std::size_t>(count)};
  if (type == GgufType::f16) {
    for (Index i = 0; i < count; ++i) put(bytes, checked_half(where, x[i]));
    return bytes;
  }
  for (Index block = 0; block < count; block += kBlock) {
    float most = 0;
    for (Index i = block; i < block + kBlock; ++i) {
      if (!std::isfinite(x[i]))
        throw CheckpointError(
            format("{} has {}, which blocks of 8 bits cannot hold; try --type f16", where, x[i]));
      most = std::max(most, std::fabs(x[i]));
    }
    const float scale = most / 127, inverse = std::isnormal(scale) ? 1 / scale : 0;
    put(bytes, checked_half(where, scale));
    for (Index i = block; i < block + kBlock; ++i)
      put(bytes, static_cast<std::int8_t>(std::round(x[i] * inverse)));
  }
  return bytes;
}

std::string header_of(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
  std::string bytes = "GGUF";
  put(bytes, kVersion);
  put(bytes, static_cast<std::uint64_t>(tensors.size()));
  put(bytes, static_cast<std::uint64_t>(metadata.size()));
  for (const auto& [key, value] : metadata) {
    put(bytes, key);
    std::visit([&](const auto& given) { put_typed(bytes, given); }, value);
  }
  std::uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    const Shape& shape = tensor.value.shape();
    put(bytes, tensor.name);
    put(bytes, static_cast<std::uint32_t>(shape.rank()));
    for (int axis = static_cast<int>(shape.rank()) - 1; axis >= 0; --axis)  // the innermost axis first
      put(bytes, static_cast<std::uint64_t>(shape[axis]));
    put(bytes, layout_of(stored_type(tensor)).number);
    put(bytes, offset);
    offset += aligned(stored_bytes(tensor));
  }
  bytes.resize(aligned(bytes.size()), '\0');
  return bytes;
}

}  // namespace

void save_gguf(const std::string& path, const GgufMetadata& metadata,
               const std::vector<GgufTensor>& tensors) {
  constexpr Index kPiece = 1 << 20;  // values, a multiple of kBlock
  AtomicFile<CheckpointError> file(path);
  file.append(header_of(metadata, tensors));
  for (const GgufTensor& tensor : tensors) {
    const Tensor x = tensor.value.to(Device::cpu()).to(DType::f32);
    for (Index i = 0; i < x.elements(); i += kPiece)
      file.append(encoded(path + ": " + tensor.name, x.data<float>() + i, std::min(kPiece, x.elements() - i),
                          stored_type(tensor)));
    const std::uint64_t bytes = stored_bytes(tensor);
    file.append(std::string(aligned(bytes) - bytes, '\0'));
  }
  file.finish();
}

std::uint16_t to_half(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  if (std::isnan(x)) return sign | 0x7e00;
  const float size = std::fabs(x);
  if (size >= 65520) return sign | 0x7c00;  // halfway from the largest to the next, were there one
  if (size < 0x1p-14f) return static_cast<std::uint16_t>(sign | std::lrint(size * 0x1p24f));  // subnormal
  bits &= 0x7fffffff;
  bits += 0xfff + (bits >> 13 & 1);  // to the nearest, ties to even
  return static_cast<std::uint16_t>(sign | ((bits - (112u << 23)) >> 13));
}

}  // namespace tapeformer
