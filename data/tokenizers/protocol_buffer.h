#pragma once

#include <cstdint>
#include <stdexcept>
#include <string_view>

namespace tapeformer {

/// Steps through the fields of a protocol buffer.
/// Throws:  std::runtime_error if it is damaged or has groups, an obsolete form of fields
class ProtocolBufferFields {
 public:
  /// The fields of a whole message.
  explicit ProtocolBufferFields(std::string_view bytes) : bytes_(bytes) {}

  /// Steps to the next field; false at the end.
  bool next() {
    if (bytes_.empty()) return false;
    const std::uint64_t tag = varint(), form = tag & 7;
    number = tag >> 3;
    value = form == 0 ? varint() : 0;
    if (form > 5 || form == 3 || form == 4) throw std::runtime_error("a field has an unknown form");
    content = take(form == 1 ? 8 : form == 2 ? varint() : form == 5 ? 4 : 0);
    return true;
  }

  std::uint64_t number = 0, value = 0;  ///< the field's number, and its value if that is an integer
  std::string_view content;             ///< a text, a message, or the bytes of a fixed-size number

 private:
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size()) throw std::runtime_error("a field is cut off");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(taken.size());
    return taken;
  }
  std::uint64_t varint() {
    std::uint64_t bits = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::uint64_t byte = static_cast<unsigned char>(take(1)[0]);
      bits |= (byte & 0x7f) << shift;
      if (byte < 0x80) return bits;
    }
    throw std::runtime_error("a number is too long");
  }

  std::string_view bytes_;
};

}  // namespace tapeformer
