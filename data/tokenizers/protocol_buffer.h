#pragma once

#include <tapeformer/autograd/error.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace tapeformer {

/// Steps through the fields of a protocol buffer.
class ProtocolBufferFields {
 public:
  /// `damaged` is the message, after the file's `name`, of a DataError.
  ProtocolBufferFields(std::string_view bytes, const std::string& name, const char* damaged)
      : bytes_(bytes), name_(name), damaged_(damaged) {}

  /// Steps to the next field; false at the end. Throws: DataError if the bytes end within it
  bool next() {
    if (bytes_.empty()) return false;
    const auto tag = static_cast<std::uint32_t>(varint());
    number = tag >> 3, value = 0, content = {};
    switch (tag & 7) {
      case 0: value = varint(); break;
      case 1: content = take(8); break;
      case 2: content = take(varint()); break;
      case 5: content = take(4); break;
      default: fail();
    }
    return true;
  }

  std::uint32_t number = 0;
  std::uint64_t value = 0;   ///< of an integer
  std::string_view content;  ///< of a text or a message; the bytes of a floating-point number

 private:
  [[noreturn]] void fail() const { throw DataError(name_, 0, damaged_); }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size()) fail();
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  std::uint64_t varint() {
    std::uint64_t bits = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1).front());
      if (shift < 64) bits |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return bits;
    }
    fail();
  }

  std::string_view bytes_;
  const std::string& name_;
  const char* damaged_;
};

}  // namespace tapeformer
