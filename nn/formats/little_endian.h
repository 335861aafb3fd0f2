#pragma once

#include <cstring>
#include <string>

// Numbers in the bytes of files, little-endian, as on every supported machine; for sources only.
namespace tapeformer {

/// Appends the bytes of a number.
template <class Number>
void put(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// The number at an offset, which must be within the bytes.
template <class Number>
Number number_at(const std::string& bytes, std::size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

}  // namespace tapeformer
