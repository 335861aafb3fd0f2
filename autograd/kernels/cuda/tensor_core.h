#pragma once

#include <tapeformer/autograd/kernels/cuda/device.h>

#if !defined(__CUDACC__)
#include <cuda_emulator_tensor_core.h>  // the same functions, played by the host
#endif

/// The tensor cores of sm_80 and newer, and asynchronous copies to shared memory. All 32 lanes call the
/// functions of a warp together. Of a fragment of 16-bit factors each lane holds pairs of neighbouring
/// terms, a pair to a register, the first in the lower half; with g = lane / 4, t = lane % 4:
///   a [16 x 16]: rows g, g + 8, g, g + 8 for a[0..3], columns 2t, 2t + 1, and 8 more for a[2], a[3]
///   b [16 x 8]:  rows 2t, 2t + 1 for b0, and 8 more for b1, column g
///   c [16 x 8]:  row g for c[0], c[1], row g + 8 for c[2], c[3], columns 2t, 2t + 1
/// A fragment of TF32, f32 with a significand of 11 bits, has one number where these have a pair, and so
/// half as many terms: columns t and t + 4 of a [16 x 8], rows t and t + 4 of b [8 x 8].
/// Source:  PTX ISA 8.7, "Matrix multiply-accumulate operation using mma instruction", "ldmatrix", "cp.async"
namespace tapeformer::kernels {

#if defined(__CUDACC__)

__device__ inline unsigned shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

/// c += a b, bf16 factors, sums in f32.
__device__ inline void mma_bf16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// c += a b, TF32 factors, sums in f32.
__device__ inline void mma_tf32(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Loads four 8 x 8 matrices of 16-bit numbers, with rows of 16 aligned bytes of shared memory: lane i passes
/// the address of row i % 8 of matrix i / 8, and gets numbers 2t and 2t + 1 of row g of each.
__device__ inline void load_matrix_x4(unsigned (&r)[4], const void* own_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(own_row))
               : "memory");
}

/// Loads the matrices transposed: number g of rows 2t and 2t + 1.
__device__ inline void load_matrix_x4_transposed(unsigned (&r)[4], const void* own_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(own_row))
               : "memory");
}

/// Copies 16 aligned bytes to shared memory, or zeros if they are missing; done after a wait for the group
/// that the next commit closes. Other threads see them after a barrier that follows that wait.
__device__ inline void copy_async_16(void* shared, const void* global, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(is_there ? 16 : 0)
               : "memory");
}
__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until all but the last `Pending` of this thread's groups are done.
template <int Pending>
__device__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

/// Begins to bring the line of an address into the L2 cache.
__device__ inline void prefetch_line(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

/// Two values rounded to bf16, the first in the lower half.
__device__ inline unsigned pack_bf16(float low, float high) {
  unsigned packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

/// x rounded to the nearest number of TF32, and away from zero between two.
__device__ inline unsigned round_tf32(float x) {
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return rounded;
}

/// The least and the greatest of the lanes' numbers. The compiler then knows that all lanes have the same.
__device__ inline int least_of_warp(int x) { return __reduce_min_sync(kAllLanes, x); }
__device__ inline int most_of_warp(int x) { return __reduce_max_sync(kAllLanes, x); }

/// 2^x within 2 units in the last place; 0 for minus infinity.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif

constexpr float kLog2E = 1.44269504088896341f;

/// The same number, but expressions of it are computed where they are used, instead of once before a loop and
/// kept in registers, which sums and scores need.
template <class T>
__device__ T anew(T x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// The lane's address for load_matrix_x4 of 16 x 16 numbers of a tile, whose rows are `pitch` numbers apart;
/// at + 16 k and so on for others. It loads
/// - the a of a product whose rows are the tile's;
/// - transposed, for a product that sums over the tile's rows (values), {b0, b1} of columns 0 to 7 and {b0,
/// b1} of columns 8 to 15.
/// Tiles of TF32 are loaded 16 x 8 numbers at a time, and never transposed.
template <class T>
__device__ const T* rows_by_16(const T* tile, int pitch) {
  return tile + own_lane() % 16 * pitch + own_lane() / 16 * (16 / static_cast<int>(sizeof(T)));
}
/// As rows_by_16() for a product with the transposed tile (keys): {b0, b1} of rows 0 to 7 and {b0, b1} of
/// rows 8 to 15; or transposed, a of the transposed tile.
template <class T>
__device__ const T* rows_by_8(const T* tile, int pitch) {
  return tile + (own_lane() % 8 + own_lane() / 16 * 8) * pitch +
         own_lane() / 8 % 2 * (16 / static_cast<int>(sizeof(T)));
}

/// The two values of a pair.
__device__ inline float low_bf16(unsigned packed) { return __uint_as_float(packed << 16); }
__device__ inline float high_bf16(unsigned packed) { return __uint_as_float(packed & 0xFFFF0000u); }

}  // namespace tapeformer::kernels
