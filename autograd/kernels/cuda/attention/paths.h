#pragma once

#include <tapeformer/autograd/kernels/attention.h>

#include <cstddef>
#include <limits>

/// Faster attention of bf16 for the most common cases. Each returns false, and queues nothing, if it does not
/// support the case or the device, or TAPEFORMER_ATTENTION excludes it; the caller then tries the next.
namespace tapeformer::kernels {

/// The slowest first; the plain kernels support everything.
enum class AttentionPath { plain, tensor_cores, hopper };
/// The fastest allowed path: the one that TAPEFORMER_ATTENTION names (hopper, tensor_cores, plain), or
/// hopper.
/// Throws:  DeviceError if it names none of them
AttentionPath fastest_attention_path();
/// True if the device has tensor cores for bf16, and this much shared memory for a block.
bool has_tensor_cores(Cuda on, std::size_t shared_bytes);

/// How blocks share the tiles of queries; no result depends on it.
struct HopperSchedule {
  int most_blocks = std::numeric_limits<int>::max();  // at most one for each multiprocessor in any case
  Index cached_bytes = Index{32} << 20;  // of keys and values in use at a time; an H100's cache has 50 MB
};
/// wgmma and the bulk copy engine, on GPUs of compute capability 9.0.
bool hopper_attention_forward(Cuda on, const AttentionShape& shape, const BFloat16* query,
                              const BFloat16* key, const BFloat16* value, const float* bias,
                              const float* sinks, BFloat16* y, float* log_sum,
                              const HopperSchedule& schedule = {});
bool hopper_attention_backward(Cuda on, const AttentionShape& shape, const BFloat16* query,
                               const BFloat16* key, const BFloat16* value, const float* bias,
                               const BFloat16* y, const float* log_sum, const BFloat16* dy,
                               Write<BFloat16> dquery, Write<BFloat16> dkey, Write<BFloat16> dvalue);

/// mma.sync, on GPUs of compute capability 8.0 and higher.
bool tensor_core_attention_forward(Cuda on, const AttentionShape& shape, const AttentionOperands<BFloat16>& x,
                                   BFloat16* y, float* log_sum);
bool tensor_core_attention_backward(Cuda on, const AttentionShape& shape,
                                    const AttentionOperands<BFloat16>& x, const BFloat16* y,
                                    const float* log_sum, const BFloat16* dy,
                                    const AttentionGradients<BFloat16>& to);

}  // namespace tapeformer::kernels
