#pragma once

// The part of the CUDA driver's API that describes tensors to the copy engine, played by the host.

#include <cstdint>

/// The arguments of cuTensorMapEncodeTiled.
struct alignas(64) CUtensorMap {
  const char* data;
  std::uint64_t sizes[4], strides[3];  // elements, bytes
  std::uint32_t box[4];
};
using cuuint32_t = std::uint32_t;
using cuuint64_t = std::uint64_t;
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
enum CUtensorMapDataType { CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9 };
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_128B = 3 };
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3 };
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 };
/// Only for boxes as in hopper.h: rank 4, rows of 128 bytes.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, std::uint32_t rank, void* data,
                                const std::uint64_t* sizes, const std::uint64_t* strides,
                                const std::uint32_t* box, const std::uint32_t* element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

namespace tapeformer::emulator {

/// The place of a call in a kernel.
struct Place {
  const char* file;
  int line;
};

}  // namespace tapeformer::emulator
