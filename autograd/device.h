#pragma once

#include <cstdint>
#include <string>

namespace tapeformer {

/// The memory that holds a tensor's bytes: the CPU's, or that of the index-th NVIDIA GPU.
struct Device {
  enum class Kind : unsigned char { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {Kind::cuda, index}; }
  /// From "cpu", "cuda" or "cuda:1"; "auto" is the first GPU where there is one, else the CPU.
  /// Throws:  DeviceError for any other name, or for a GPU that is missing, saying why.
  static Device named(const std::string& name);

  bool is_cuda() const { return kind == Kind::cuda; }
  bool operator==(const Device& other) const { return kind == other.kind && index == other.index; }
  bool operator!=(const Device& other) const { return !(*this == other); }
  /// "cpu", "cuda:0"
  std::string text() const { return is_cuda() ? "cuda:" + std::to_string(index) : "cpu"; }
};

/// The device of tensors made without naming one; the CPU until set_default_device().
Device default_device();
void set_default_device(Device device);

namespace cuda {

/// 0 without a GPU, a driver, or CUDA in this build.
int device_count();
/// Why there are no more devices, e.g. "this build has no CUDA (configure with -DTAPEFORMER_CUDA=ON)".
std::string availability();
/// "NVIDIA H200, 139 GiB, sm_90"
std::string device_name(int device);
struct MemoryStatistics {
  std::int64_t held_bytes = 0, in_use_bytes = 0, peak_bytes = 0;
};
MemoryStatistics memory_statistics(int device);
/// Waits until everything queued is done. Throws: DeviceError when some of it failed.
void synchronize(int device);

/// How f32 matrix products are computed: in f32, or with factors rounded to TF32 (10 bits) and sums in f32.
enum class MatmulPrecision : std::uint8_t { f32, tf32 };
void set_matmul_precision(MatmulPrecision precision);
MatmulPrecision matmul_precision();

}  // namespace cuda
}  // namespace tapeformer
