#pragma once

#include <tapeformer/nn/module.h>

namespace tapeformer {

class Command;

/// A model's device and precision.
struct Compute {
  Device device;
  std::string precision = "f32";
  bool graphs = true;  ///< on a GPU, steps that repeat are queued as CUDA graphs: see CudaGraphCache
  Index threads = 0;   ///< of the host; 0 leaves the number as it is

  /// Moves the model and sets its precision, also for f32 matrix products.
  void apply(Module& model) const;
  /// "computes on cuda:0 (NVIDIA H200, 139 GiB, sm_90) in bf16"
  std::string text() const;
  /// As text(), with the peak memory and the number of steps that ran as graphs.
  std::string usage_text() const;
};

/// The options that choose device and precision.
struct ComputeOptions {
  std::string device;  ///< a name that Device::named() knows; empty for default_device()
  std::string
      precision;  ///< f32; bf16 (weights and activations on a GPU, factors of matrix products on the CPU);
                  ///< tf32 (factors of matrix products on a GPU); empty if not given
  bool graphs = true;
  Index threads = 0;

  /// Adds --device, whose default is then a GPU if there is one; for commands with a `model` also --threads,
  /// --precision and --no-graphs. The help adds `otherwise` to the defaults of threads and precision.
  void add_to(const Command& command, bool model = true, const std::string& otherwise = {});
  /// The choice; `unsaid` is the precision without --precision.
  /// Throws: DeviceError if there is no such GPU; Error for a precision that the device does not support
  Compute chosen(const std::string& unsaid = "f32") const;
};

/// Adds --threads. Throws: (when the command line is read) Error for a number out of range
void add_threads_option(const Command& command, Index& threads, const std::string& help);

/// "peak memory of cuda:0: 812 MiB"; empty for the CPU.
std::string peak_memory_text(Device device);

}  // namespace tapeformer
