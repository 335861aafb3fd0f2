#pragma once

#include <cstdint>
#include <string>

namespace tapeformer {

/// The memory that holds a tensor's bytes: the CPU's, or that of the index-th NVIDIA GPU.
struct Device {
  /// The kinds of memory.
  enum class Kind : unsigned char { cpu, cuda };
  Kind kind = Kind::cpu;  ///< of the processor that computes with the memory
  int index = 0;          ///< the GPU's number; 0 for the CPU

  /// The host's memory.
  static constexpr Device cpu() { return {}; }
  /// The memory of the index-th GPU that CUDA shows.
  static constexpr Device cuda(int index = 0) { return {Kind::cuda, index}; }
  /// From "cpu", "cuda" or "cuda:1"; "auto" is the first GPU where there is one, else the CPU.
  /// Throws:  DeviceError for any other name, or for a GPU that is missing, saying why.
  static Device named(const std::string& name);

  /// True for a GPU.
  bool is_cuda() const { return kind == Kind::cuda; }
  /// Equal in kind and index.
  bool operator==(const Device& other) const { return kind == other.kind && index == other.index; }
  /// The negation of ==.
  bool operator!=(const Device& other) const { return !(*this == other); }
  /// "cpu", "cuda:0"
  std::string text() const { return is_cuda() ? "cuda:" + std::to_string(index) : "cpu"; }
};

/// The device of tensors made without naming one; the CPU until set_default_device().
Device default_device();
/// Sets the default for new tensors; existing ones stay where they are.
void set_default_device(Device device);

/// NVIDIA GPUs, by their number.
namespace cuda {

/// The number of GPUs; 0 without a driver, or without CUDA in this build.
int device_count();
/// Why there are no more devices, e.g. "this build has no CUDA (configure with -DTAPEFORMER_CUDA=ON)".
std::string availability();
/// The name and size of a GPU: "NVIDIA H200, 139 GiB, sm_90".
std::string device_name(int device);
/// Statistics of a GPU's memory pool.
struct MemoryStatistics {
  /// Bytes taken from the driver, those of them in use now, and the most ever in use.
  std::int64_t held_bytes = 0, in_use_bytes = 0, peak_bytes = 0;
};
/// The statistics of the device's pool in this process.
MemoryStatistics memory_statistics(int device);
/// Waits until everything queued is done.
/// Throws: DeviceError if some of it failed; ShapeError if an operation has found invalid input
void synchronize(int device);

}  // namespace cuda

/// How products of f32 tensors are computed: in f32, or with rounded factors and sums in f32. On a GPU the
/// factors may be rounded to TF32 (10 bits), those of attention too; on the CPU to bf16 (7 bits) in products
/// of at least 32 rows, columns and terms; has_bf16_products() says where this saves time. On a GPU bf16
/// means f32, and on the CPU tf32 does.
enum class MatmulPrecision : std::uint8_t { f32, tf32, bf16 };
/// Sets the precision for all devices and threads of this process.
void set_matmul_precision(MatmulPrecision precision);
/// The precision of set_matmul_precision(); f32 at first.
MatmulPrecision matmul_precision();
}  // namespace tapeformer
