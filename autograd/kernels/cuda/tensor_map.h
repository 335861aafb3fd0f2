#pragma once

#include <tapeformer/autograd/kernels/attention.h>
#include <tapeformer/autograd/kernels/cuda/hopper.h>

namespace tapeformer::kernels {

/// Describes a tensor [batch, rows, heads, width] to load_box() and store_box(): boxes of `box_rows` rows and
/// 64 columns of one head. Columns are contiguous.
/// Throws:  DeviceError if the driver refuses
CUtensorMap box_map(const BFloat16* x, const HeadStrides& strides, Index batch, Index rows, Index heads,
                    Index width, int box_rows);
/// The multiprocessors of a device of compute capability 9.0; 0 for others.
int hopper_multiprocessors(Cuda on);
/// True if the device has compute capability 9.0 and the case suits hopper.h: no masks but ranges, no
/// dropout, rows that the copy engine takes; `y` is the result or its gradient, [B, T, H, E].
bool hopper_takes(Cuda on, const AttentionShape& shape, const BFloat16* query, const BFloat16* key,
                  const BFloat16* value, const float* bias, const BFloat16* y);

}  // namespace tapeformer::kernels
