#pragma once

#include <string>

namespace tapeformer {

/// Where a tensor's bytes are: the CPU's memory, or that of the index-th NVIDIA GPU.
struct Device {
  enum class Kind : unsigned char { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {Kind::cuda, index}; }
  /// From "cpu", "cuda" or "cuda:1"; "auto" is the first GPU where there is one, else the CPU.
  /// Throws: DeviceError when it is none of these, or a GPU that is not there, saying why.
  static Device named(const std::string& name);

  bool is_cuda() const { return kind == Kind::cuda; }
  bool operator==(const Device& other) const { return kind == other.kind && index == other.index; }
  bool operator!=(const Device& other) const { return !(*this == other); }
  /// "cpu", "cuda:0"
  std::string text() const { return is_cuda() ? "cuda:" + std::to_string(index) : "cpu"; }
};

/// Where tensors go that are made without saying where; the CPU until set_default_device().
Device default_device();
void set_default_device(Device device);

}  // namespace tapeformer
