#pragma once

#include <tapeformer/autograd/shape.h>

#include <cstdint>
#include <string>

// Whole numbers in files, which are little-endian on every machine.
namespace tapeformer {

/// The number in the first `bytes` bytes, eight at most.
inline std::uint64_t read_little_endian(const unsigned char* from, Index bytes) {
  std::uint64_t number = 0;
  for (Index i = 0; i < bytes; ++i) number |= std::uint64_t{from[i]} << (8 * i);
  return number;
}

/// Appends the lowest `bytes` bytes of `number`.
inline void write_little_endian(std::string& to, std::uint64_t number, Index bytes) {
  for (Index i = 0; i < bytes; ++i) to += static_cast<char>(number >> (8 * i));
}

}  // namespace tapeformer
