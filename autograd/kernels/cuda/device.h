#pragma once

#include <tapeformer/autograd/cuda/runtime.h>
#include <tapeformer/autograd/kernels/write.h>

#if !defined(__CUDACC__)
#include <cuda_emulator.h>  // the host plays the device, in the tests
#endif

#include <algorithm>

/// Shared by the .cu files. They compile as CUDA and, for the tests, as plain C++ against an emulator, so
/// they use launch() and dynamic_shared() instead of <<<>>> and extern __shared__, and no thread returns
/// before a barrier that others reach.
namespace tapeformer::kernels {

constexpr int kWarp = 32;
constexpr int kBlock = 256;  // the default number of threads of a block
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

#if defined(__CUDACC__)
/// The dynamic shared memory of a block.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  return reinterpret_cast<T*>(shared_bytes);
}
#endif

#if !defined(__CUDACC__)
/// A kernel's pointers must be to its device's memory; other arguments may be anything. Any other overload
/// is preferred to this one, those for a base of the argument too.
inline void require_argument(...) {}
template <class T>
void require_argument(const char* kernel, cudaStream_t stream, T* pointer) {
  emulator::require_device_memory(kernel, stream, pointer, 0);
}
template <class T>
void require_argument(const char* kernel, cudaStream_t stream, const Write<T>& write) {
  emulator::require_device_memory(kernel, stream, write.to, 0);
}
#endif

/// The blocks of a launch, the threads of each, and its dynamic shared memory.
struct Grid {
  Grid(Index count, int threads_of_block = kBlock, std::size_t bytes = 0)
      : blocks(static_cast<unsigned>(count)), threads(threads_of_block), shared_bytes(bytes) {}
  Grid(Index across, Index down, Index deep, dim3 threads_of_block)
      : blocks(static_cast<unsigned>(across), static_cast<unsigned>(down), static_cast<unsigned>(deep)),
        threads(threads_of_block) {}
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;
};

/// Queues a kernel, whose arguments it casts to the parameters; does nothing if the grid is empty.
template <class... Parameters, class... Arguments>
void launch(Cuda on, const char* name, void (*kernel)(Parameters...), const Grid& grid,
            Arguments... arguments) {
  const auto [blocks, threads, shared_bytes] = grid;
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return;
  const cudaStream_t stream = cuda::stream_of(on.device);
  if (shared_bytes > 0) cuda::allow_shared(on.device, reinterpret_cast<const void*>(kernel), shared_bytes);
#if defined(__CUDACC__)
  kernel<<<blocks, threads, shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
#else
  emulator::require_allowed(name, stream, reinterpret_cast<const void*>(kernel), shared_bytes);
  emulator::perform(stream, [=] {
    (require_argument(name, stream, static_cast<Parameters>(arguments)), ...);
    emulator::launch(name, grid.blocks, grid.threads, grid.shared_bytes,
                     [&] { kernel(static_cast<Parameters>(arguments)...); });
  });
#endif
  cuda::check_launch(stream, name);
}

constexpr Index tiles_of(Index count, Index size) { return (count + size - 1) / size; }

/// Blocks of kBlock threads for a loop over `count` elements; for_each_index() covers the rest.
inline Index blocks_for(Index count) { return std::min<Index>(tiles_of(count, kBlock), 65536); }

__device__ inline int own_lane() { return static_cast<int>(threadIdx.x % kWarp); }
__device__ inline int own_warp() { return static_cast<int>(threadIdx.x / kWarp); }

/// Calls f(i) for this thread's indices below `count`.
template <class F>
__device__ void for_each_index(Index count, F&& f) {
  const Index stride = Index{gridDim.x} * blockDim.x;
  for (Index i = Index{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) f(i);
}

/// Returns to every lane f over the values of its group of kLanes lanes, combined in a fixed order.
template <int kLanes = kWarp, class T, class F>
__device__ T warp_reduce(T value, F&& f) {
  for (int offset = kLanes / 2; offset > 0; offset /= 2)
    value = f(value, __shfl_xor_sync(kAllLanes, value, offset));
  return value;
}
template <int kLanes = kWarp, class T>
__device__ T warp_sum(T value) {
  return warp_reduce<kLanes>(value, [](T a, T b) { return a + b; });
}
template <int kLanes = kWarp, class T>
__device__ T warp_largest(T value) {
  return warp_reduce<kLanes>(value, [](T a, T b) { return max(a, b); });
}

/// Returns to every thread of a one-dimensional block of whole warps f over all their values, combined in a
/// fixed order. f(identity, x) is x. All threads must call it.
template <class T, class F>
__device__ T block_reduce(T value, T identity, F&& f) {
  __shared__ T of_warps[kWarp];
  value = warp_reduce(value, f);
  __syncthreads();  // an earlier call's reads must be done
  if (own_lane() == 0) of_warps[own_warp()] = value;
  __syncthreads();
  return warp_reduce(own_lane() < static_cast<int>(blockDim.x) / kWarp ? of_warps[own_lane()] : identity, f);
}

template <class T>
__device__ T block_sum(T value) {
  return block_reduce(value, T(0), [](T a, T b) { return a + b; });
}

}  // namespace tapeformer::kernels
