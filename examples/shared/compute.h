#pragma once

#include <tapeformer/nn/module.h>

#include <string>

namespace tapeformer {

class Command;

/// Where a model computes, and in what numbers.
struct Compute {
  Device device;
  std::string precision = "f32";
  bool graphs = true;  ///< on a GPU, steps that repeat are queued as CUDA graphs: see CudaGraphCache
  Index threads = 0;   ///< of the host; 0 for as many as now

  /// Moves the model there and has it compute so from now on, matrix products of f32 included.
  void apply(Module& model) const;
  /// "computes on cuda:0 (NVIDIA H200, 139 GiB, sm_90) in bf16"
  std::string text() const;
  /// The same, what memory that took, and how many steps were graphs.
  std::string usage_text() const;
};

/// The options for it.
struct ComputeOptions {
  std::string device;     ///< as Device::named() takes it; empty for default_device()
  std::string precision;  ///< f32; or on a GPU tf32: matrix products of factors rounded to TF32; or bf16:
                          ///< weights and activations in bf16, the rest in f32. Empty: not said
  bool graphs = true;
  Index threads = 0;

  /// --device, from now on with a GPU by default where there is one; with a `model` also --threads,
  /// --precision and --no-graphs.
  void add_to(const Command& command, bool model = true);
  /// Throws: DeviceError for a GPU that is not there; Error for a precision that the device does not have.
  ///         `unsaid` is the precision where none is said.
  Compute chosen(const std::string& unsaid = "f32") const;
};

/// The option --threads. Throws: (when the command line is read) Error for a number out of range
void add_threads_option(const Command& command, Index& threads, const std::string& help);

/// "peak memory of cuda:0: 812 MiB"; empty for the CPU.
std::string peak_memory_text(Device device);

}  // namespace tapeformer
