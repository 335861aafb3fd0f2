#pragma once

#include <tapeformer/autograd/kernels/cuda/tensor_core.h>

#if defined(__CUDACC__)
#include <cuda.h>  // for CUtensorMap; the driver is not linked
#else
#include <cuda_emulator_hopper.h>  // the same functions, played by the host
#endif

/// Additions of sm_90a: barriers in shared memory that count arrivals and bytes, copies of boxes of a tensor
/// that one thread starts, and asynchronous products of a warpgroup (4 warps, the first a multiple of 4).
/// Source:  PTX ISA 8.7, "mbarrier", "cp.async.bulk.tensor", "wgmma.mma_async", "setmaxnreg", "bar"
namespace tapeformer::kernels {

/// Rows of a box are 128 bytes; the position of each 16-byte piece is XORed with the row's number modulo 8,
/// which is bits 7 to 9 of its address. So tiles begin at multiples of 1024.
constexpr int kBoxRowBytes = 128, kBoxColumns = 64, kSwizzleBytes = 1024;
constexpr int kWarpgroup = 128;

#if defined(__CUDACC__)

/// A phase of the barrier ends when `arrivals` threads have arrived and the bytes that they expect are there.
__device__ inline void init_barrier(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}
/// Must come after init_barrier and before the barrier of the block that lets others use it.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/// Arrives, and makes the phase wait for this many more bytes.
__device__ inline void arrive_expecting(std::uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
/// Waits until the phase of this parity has ended: the first has parity 0, and the one before it counts as
/// ended.
__device__ inline void wait(std::uint64_t* barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred p;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra DONE;\nbra AGAIN;\nDONE:\n}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

/// Starts a copy of a box of a tensor of rank 4, with zeros outside the tensor; one thread calls it, and
/// `barrier` counts its bytes.
__device__ inline void load_box(void* to, const CUtensorMap* map, std::uint64_t* barrier, int column, int row,
                                int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}
/// The copy back; elements outside the tensor are dropped. The threads that wrote the box must have called
/// publish_to_copies(), and met the caller.
__device__ inline void store_box(const CUtensorMap* map, const void* from, int column, int row, int head,
                                 int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
      "r"(shared_address(from)), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}
/// Waits until this thread's stores have read shared memory, which must not change before.
__device__ inline void finish_stores() {
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
}
/// Makes this thread's writes to shared memory visible to copies and products.
__device__ inline void publish_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Sets the number of registers of each thread. All warps of a warpgroup call it; registers that others gave
/// up can be taken.
template <int Registers>
__device__ void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// One of 15 barriers of a block, 1 to 15, for `threads` threads; arrive_at() does not wait.
__device__ inline void meet_at(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void arrive_at(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/// Needed before the first product, and after other accesses to the registers of products.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Closes a group of products.
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until all but the last `Pending` groups are done; their registers must not be used before.
template <int Pending>
__device__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

/// Called before wgmma_fence() and after wgmma_wait() with registers that products read or write: the
/// compiler knows the instruction that begins a product, but not how long it runs, and moves no other use of
/// the registers past this.
template <int N>
__device__ void hold(float (&registers)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(registers[i]));
}
template <int N>
__device__ void hold(unsigned (&registers)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(registers[i]));
}
template <class T, int N, int M>
__device__ void hold(T (&registers)[N][M]) {
#pragma unroll
  for (int i = 0; i < N; ++i) hold(registers[i]);
}

// Inline assembly has no loop over registers, so the 32 or 64 of a product are spelled out here once.
#define REGISTERS_32                                                       \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGISTERS_64                                                            \
  REGISTERS_32                                                                  \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46" \
  ", %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define OPERANDS_8(i)                                                                         \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define OPERANDS_32(i) OPERANDS_8(i), OPERANDS_8(i + 8), OPERANDS_8(i + 16), OPERANDS_8(i + 24)
#define OPERANDS_64 OPERANDS_32(0), OPERANDS_32(32)
#define PRODUCT(columns, registers, a, b, adds, layout)                                      \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " adds ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns \
  "k16.f32.bf16.bf16 {" registers "}, " a ", " b ", p, 1, 1, " layout ";\n}\n"

/// d += a b, or d = a b, in f32, with a [64 x 16] and b [16 x N] of bf16: N is twice the size of d. Warp w of
/// the group holds rows 16 w to 16 w + 15 of d, laid out as a row of tensor_core.h's c, and of an a in
/// registers, laid out as its a. Matrices in shared memory are matrix_at()'s: a and b along k, or a in
/// registers and b across k.
__device__ inline void wgmma(float (&d)[32], std::uint64_t a, std::uint64_t b, bool adds) {
  asm volatile(PRODUCT("64", REGISTERS_32, "%32", "%33", "%34", "0, 0")
               : OPERANDS_32(0)
               : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}
__device__ inline void wgmma(float (&d)[32], const unsigned (&a)[4], std::uint64_t b, bool adds) {
  asm volatile(PRODUCT("64", REGISTERS_32, "{%32, %33, %34, %35}", "%36", "%37", "1")
               : OPERANDS_32(0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)));
}
__device__ inline void wgmma(float (&d)[64], std::uint64_t a, std::uint64_t b, bool adds) {
  asm volatile(PRODUCT("128", REGISTERS_64, "%64", "%65", "%66", "0, 0")
               : OPERANDS_64
               : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}
__device__ inline void wgmma(float (&d)[64], const unsigned (&a)[4], std::uint64_t b, bool adds) {
  asm volatile(PRODUCT("128", REGISTERS_64, "{%64, %65, %66, %67}", "%68", "%69", "1")
               : OPERANDS_64
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)));
}

#undef PRODUCT
#undef OPERANDS_64
#undef OPERANDS_32
#undef OPERANDS_8
#undef REGISTERS_64
#undef REGISTERS_32

#endif

/// The description of a matrix in boxes of 128-byte rows. Along k (the rows are those of a, or columns of b)
/// groups of 8 rows are `stride` bytes apart. Across k (the rows are k) groups of 8 k are `stride` bytes
/// apart, and pieces of 64 columns are `leading` bytes apart.
__device__ inline std::uint64_t matrix_at(const void* shared, int leading, int stride) {
  const auto field = [](unsigned bytes) { return static_cast<std::uint64_t>((bytes & 0x3FFFFu) >> 4); };
  return field(shared_address(shared)) | field(static_cast<unsigned>(leading)) << 16 |
         field(static_cast<unsigned>(stride)) << 32 | std::uint64_t{1} << 62;
}

}  // namespace tapeformer::kernels
