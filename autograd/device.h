#pragma once

#include <string>

namespace tapeformer {

/// Where a tensor's bytes are. This build has the CPU only.
struct Device {
  enum class Kind : unsigned char { cpu };
  Kind kind = Kind::cpu;
  int index = 0;

  bool operator==(const Device& other) const { return kind == other.kind && index == other.index; }
  bool operator!=(const Device& other) const { return !(*this == other); }
  std::string text() const { return "cpu"; }
};

}  // namespace tapeformer
