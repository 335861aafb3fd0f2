#pragma once

#include <tapeformer/autograd/bfloat16.h>

#include <cstdint>
#include <type_traits>

namespace tapeformer {

/// The type of a tensor's elements.
enum class DType : std::uint8_t { f32, f64, bf16, i32, boolean };

/// The size of one element.
constexpr std::int64_t bytes_of(DType type) {
  switch (type) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::f64: return 8;
    case DType::bf16: return 2;
    case DType::boolean: return 1;
  }
  return 0;
}

/// "f32", "f64", "bf16", "i32" or "bool".
constexpr const char* name_of(DType type) {
  switch (type) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::bf16: return "bf16";
    case DType::i32: return "i32";
    case DType::boolean: return "bool";
  }
  return "?";
}

/// True of f32, f64 and bf16, the types that have gradients.
constexpr bool is_floating(DType type) {
  return type == DType::f32 || type == DType::f64 || type == DType::bf16;
}
/// The type of sums, statistics and gradients of parameters: f32 for bf16, else the type itself.
constexpr DType wide(DType type) { return type == DType::bf16 ? DType::f32 : type; }

/// The DType that stores a C++ type: dtype_of<float>() == DType::f32.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) {
    return DType::f32;
  } else if constexpr (std::is_same_v<T, double>) {
    return DType::f64;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return DType::bf16;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return DType::i32;
  } else {
    static_assert(std::is_same_v<T, bool>, "tensors hold float, double, BFloat16, std::int32_t or bool");
    return DType::boolean;
  }
}

}  // namespace tapeformer
