#pragma once

#include <tapeformer/autograd/config/names.h>
#include <tapeformer/autograd/tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tapeformer {

/// A value of a GGUF file's metadata.
using GgufValue = std::variant<std::uint32_t, float, bool, std::string, std::vector<std::uint8_t>,
                               std::vector<std::int32_t>, std::vector<float>, std::vector<std::string>>;
/// Keys and values, in the order of the file.
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

/// The types in which matrices are stored: f32, rounded to half precision, or in blocks of 32 values of 8
/// bits with a half-precision scale.
enum class GgufType { f32, f16, q8_0 };
template <>
inline constexpr EnumNames kNames<GgufType>{"the type", {"f32", "f16", "q8_0"}};

/// A tensor to write.
struct GgufTensor {
  std::string name;               ///< its name in llama.cpp
  Tensor value;                   ///< f32
  GgufType type = GgufType::f32;  ///< its type in the file: see save_gguf()
};

/// Writes a file of version 3 whole or not at all. Q8_0 needs rows of whole blocks: tensors with other rows
/// are stored in half precision.
/// Throws:  CheckpointError if it cannot be written, a value exceeds the range of half precision, or one in
///          blocks is not finite
/// Source:  the format as described at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
void save_gguf(const std::string& path, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors);

/// The nearest half-precision value, ties to even, as bits; infinity beyond the largest.
std::uint16_t to_half(float x);

}  // namespace tapeformer
