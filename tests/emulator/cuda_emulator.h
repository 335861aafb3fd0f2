#pragma once

// CUDA's names for kernels compiled as C++ for the host, and `launch`, which runs a kernel: blocks in turn,
// and the threads of a block as fibres. README.md next to it says what is emulated.

#include <math.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#if defined(__SANITIZE_THREAD__)
// Compilers copy and clear structures by these functions, whose accesses would go unseen.
__asm__("memcpy = __tsan_memcpy\nmemmove = __tsan_memmove\nmemset = __tsan_memset");
#endif

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ \
  alignas(64) static thread_local  // g++ 12 takes an alignment for granted that it does not give

struct alignas(8) float2 {
  float x, y;
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct dim3 {
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  unsigned x, y, z;
};

inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// The running thread's indices: constants as far as it can tell, so that kernels keep them in registers.
extern const __thread uint3 threadIdx, blockIdx;
extern const __thread dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace tapeformer::emulator {

/// Undefined behaviour of a kernel: a barrier or a warp operation that not all reach, or a race.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Options {
  std::uint64_t order = 0;  ///< seed of the order of blocks and threads; 0: as numbered
  bool races = true;        ///< look for races, in kernels compiled with -fsanitize=thread
};
/// One for the process; `order` begins as the environment variable TAPEFORMER_EMULATOR_ORDER says.
Options& options();

constexpr std::size_t kMaxSharedBytes = 227 * 1024;

enum class Operation {
  sync,
  sync_or,
  syncwarp,
  shfl,
  shfl_xor,
  ballot,
  share,
  phase,
  named_barrier,
  products,
  registers
};

/// One thread's part in a collective operation, and its place in the source.
struct Call {
  Operation operation;
  const char* file;
  int line;
  unsigned mask;
  std::uint64_t value;
  int argument;  ///< of a shuffle: lane or pattern; of values in common: their bytes
  int width;
};
/// Waits for the others and returns what the operation gives this thread.
std::uint64_t meet(const Call& call);
constexpr std::size_t kSharedStride = 64;  // the most bytes that a lane shares
/// The values of all 32 lanes, kSharedStride bytes apart, until the warp exchanges again.
const char* share(const void* own, std::size_t bytes, const char* file, int line);

void run(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes, void (*body)(void*),
         void* arguments);

/// Runs `body()` once for each thread. Throws Fault, and what `body` throws; std::runtime_error for a launch
/// that a device would refuse.
template <class Body>
void launch(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes, Body&& body) {
  using Stored = std::remove_reference_t<Body>;
  run(
      name, grid, block, shared_bytes, [](void* stored) { (*static_cast<Stored*>(stored))(); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

/// The dynamic shared memory of the block that runs.
void* shared_memory();

template <class T>
T shuffle(Operation operation, unsigned mask, T value, int argument, int width, const char* file, int line) {
  static_assert(std::is_trivially_copyable<T>::value && (sizeof(T) == 4 || sizeof(T) == 8), "4 or 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = meet({operation, file, line, mask, bits, argument, width});
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class To, class From>
To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "equal sizes");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace tapeformer::emulator

namespace tapeformer::kernels {

/// The dynamic shared memory of a block, 16-byte aligned; 0xFF bytes when the block starts.
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(emulator::shared_memory());
}

}  // namespace tapeformer::kernels

// Default arguments know the caller's line; faults name it.
inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  tapeformer::emulator::meet({tapeformer::emulator::Operation::sync, file, line, 0, 0, 0, 0});
}
inline int __syncthreads_or(int predicate, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return static_cast<int>(tapeformer::emulator::meet(
      {tapeformer::emulator::Operation::sync_or, file, line, 0, predicate != 0, 0, 0}));
}
inline void __syncwarp(unsigned mask = 0xffffffffu, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  tapeformer::emulator::meet({tapeformer::emulator::Operation::syncwarp, file, line, mask, 0, 0, warpSize});
}
inline unsigned __ballot_sync(unsigned mask, int predicate, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  return static_cast<unsigned>(tapeformer::emulator::meet(
      {tapeformer::emulator::Operation::ballot, file, line, mask, predicate != 0, 0, warpSize}));
}
inline int __all_sync(unsigned mask, int predicate, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  return __ballot_sync(mask, predicate, file, line) == mask;
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) {
  return tapeformer::emulator::shuffle(tapeformer::emulator::Operation::shfl, mask, value, lane, width, file,
                                       line);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int pattern, int width = warpSize,
                  const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return tapeformer::emulator::shuffle(tapeformer::emulator::Operation::shfl_xor, mask, value, pattern, width,
                                       file, line);
}

#include <cuda_emulator_functions.h>
