#pragma once

// The functions of autograd/kernels/cuda/hopper.h, and what the host needs to describe tensors, played by the
// host: see there, and README.md for what is found wrong.

#include <cuda_emulator.h>

#define __grid_constant__

/// What cuTensorMapEncodeTiled was told.
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
/// Takes what hopper.h's boxes need alone: rank 4, rows of 128 bytes.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, std::uint32_t rank, void* data,
                                const std::uint64_t* sizes, const std::uint64_t* strides,
                                const std::uint32_t* box, const std::uint32_t* element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

namespace tapeformer::emulator {

struct Place {
  const char* file;
  int line;
};

void init_barrier(std::uint64_t* barrier, int arrivals);
void publish_barriers();
void arrive(std::uint64_t* barrier, int bytes);
void wait(std::uint64_t* barrier, unsigned parity, Place place);
void load_box(void* to, const CUtensorMap& map, std::uint64_t* barrier, const int (&at)[4], Place place);
void store_box(const CUtensorMap& map, const void* from, const int (&at)[4], Place place);
void finish_stores();
void publish_to_copies();
void set_registers(int count, bool more);
void meet_at(int barrier, int threads, bool waits, Place place);
void wgmma_fence();
/// `a` of shared memory when `registers` is nullptr.
void wgmma(float* d, int columns, std::uint64_t a, const unsigned* registers, std::uint64_t b, bool adds,
           Place place);
void wgmma_commit();
void wgmma_wait(std::size_t pending, Place place);
unsigned shared_address(const void* shared);

}  // namespace tapeformer::emulator

namespace tapeformer::kernels {

using emulator::finish_stores;
using emulator::init_barrier;
using emulator::publish_barriers;
using emulator::publish_to_copies;
using emulator::shared_address;
using emulator::wgmma_commit;
using emulator::wgmma_fence;

inline void arrive(std::uint64_t* barrier) { emulator::arrive(barrier, 0); }
inline void arrive_expecting(std::uint64_t* barrier, int bytes) { emulator::arrive(barrier, bytes); }
inline void wait(std::uint64_t* barrier, unsigned parity, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) {
  emulator::wait(barrier, parity, {file, line});
}
inline void load_box(void* to, const CUtensorMap* map, std::uint64_t* barrier, int column, int row, int head,
                     int batch, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::load_box(to, *map, barrier, {column, row, head, batch}, {file, line});
}
inline void store_box(const CUtensorMap* map, const void* from, int column, int row, int head, int batch,
                      const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::store_box(*map, from, {column, row, head, batch}, {file, line});
}
template <int Registers>
void give_up_registers() {
  emulator::set_registers(Registers, false);
}
template <int Registers>
void take_registers() {
  emulator::set_registers(Registers, true);
}
inline void meet_at(int barrier, int threads, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  emulator::meet_at(barrier, threads, true, {file, line});
}
inline void arrive_at(int barrier, int threads, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  emulator::meet_at(barrier, threads, false, {file, line});
}
template <class Registers>
void hold(Registers&) {}
template <int Size>
void wgmma(float (&d)[Size], std::uint64_t a, std::uint64_t b, bool adds, const char* file = __builtin_FILE(),
           int line = __builtin_LINE()) {
  emulator::wgmma(d, 2 * Size, a, nullptr, b, adds, {file, line});
}
template <int Size>
void wgmma(float (&d)[Size], const unsigned (&a)[4], std::uint64_t b, bool adds,
           const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::wgmma(d, 2 * Size, 0, a, b, adds, {file, line});
}
template <int Pending>
void wgmma_wait(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::wgmma_wait(Pending, {file, line});
}

}  // namespace tapeformer::kernels
