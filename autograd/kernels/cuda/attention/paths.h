#pragma once

#include <tapeformer/autograd/kernels/attention.h>

#include <cstddef>

/// Faster attention of bf16 for the cases that matter most. Each returns false, and has queued nothing, where
/// the case, the device, or TAPEFORMER_ATTENTION is not for it; the caller goes on to the next.
namespace tapeformer::kernels {

/// From the slowest; the plain kernels take everything.
enum class AttentionPath { plain, tensor_cores, hopper };
/// The fastest that may be taken: what TAPEFORMER_ATTENTION names (hopper, tensor_cores, plain), or all.
/// Throws: DeviceError if it names none of them
AttentionPath fastest_attention_path();
/// Whether the device has tensor cores for bf16, and so much shared memory for a block.
bool has_tensor_cores(Cuda on, std::size_t shared_bytes);

/// wgmma and the bulk copy engine, on GPUs of compute capability 9.0.
bool hopper_attention_forward(Cuda on, const AttentionShape& shape, const BFloat16* query,
                              const BFloat16* key, const BFloat16* value, const float* bias, BFloat16* y,
                              float* log_sum);
bool hopper_attention_backward(Cuda on, const AttentionShape& shape, const BFloat16* query,
                               const BFloat16* key, const BFloat16* value, const float* bias,
                               const BFloat16* y, const float* log_sum, const BFloat16* dy,
                               Write<BFloat16> dquery, Write<BFloat16> dkey, Write<BFloat16> dvalue);

/// mma.sync, on GPUs of compute capability 8.0 and higher.
bool tensor_core_attention_forward(Cuda on, const AttentionShape& shape, const BFloat16* query,
                                   const BFloat16* key, const BFloat16* value, const float* bias, BFloat16* y,
                                   float* log_sum);
bool tensor_core_attention_backward(Cuda on, const AttentionShape& shape, const BFloat16* query,
                                    const BFloat16* key, const BFloat16* value, const float* bias,
                                    const BFloat16* y, const float* log_sum, const BFloat16* dy,
                                    Write<BFloat16> dquery, Write<BFloat16> dkey, Write<BFloat16> dvalue);

}  // namespace tapeformer::kernels
