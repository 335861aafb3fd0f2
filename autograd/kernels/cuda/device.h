#pragma once

#include <tapeformer/autograd/cuda/runtime.h>
#include <tapeformer/autograd/kernels/write.h>

#if !defined(__CUDACC__)
#include <cuda_emulator.h>  // the host plays the device, in the tests
#endif

#include <algorithm>
#include <cstddef>
#include <type_traits>

/// Shared by the .cu files. They compile as CUDA and, for the tests, as plain C++ against an emulator, so
/// they use launch() and dynamic_shared() instead of <<<>>> and extern __shared__, and no thread returns
/// before a barrier that others reach.
namespace tapeformer::kernels {

constexpr int kWarp = 32;
constexpr int kBlock = 256;  // the default number of threads of a block

#if defined(__CUDACC__)
/// The dynamic shared memory of a block.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  return reinterpret_cast<T*>(shared_bytes);
}
#endif

#if !defined(__CUDACC__)
/// A kernel's pointers must be to its device's memory; other arguments may be anything.
template <class T>
void require_argument(const char*, cudaStream_t, const T&) {}
template <class T>
void require_argument(const char* kernel, cudaStream_t stream, T* pointer) {
  emulator::require_device_memory(kernel, stream, pointer, 0);
}
template <class T>
void require_argument(const char* kernel, cudaStream_t stream, const Write<T>& write) {
  emulator::require_device_memory(kernel, stream, write.to, 0);
}
#endif

/// Queues a kernel; does nothing if the grid is empty.
template <class... Parameters, class... Arguments>
void launch(Cuda on, const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            std::size_t shared_bytes, Arguments... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  const cudaStream_t stream = cuda::stream_of(on.device);
  if (shared_bytes > 0) cuda::allow_shared(on.device, reinterpret_cast<const void*>(kernel), shared_bytes);
#if defined(__CUDACC__)
  kernel<<<grid, block, shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
#else
  emulator::require_allowed(name, stream, reinterpret_cast<const void*>(kernel), shared_bytes);
  emulator::perform(stream, [=] {
    (require_argument(name, stream, static_cast<Parameters>(arguments)), ...);
    emulator::launch(name, grid, block, shared_bytes, [&] { kernel(static_cast<Parameters>(arguments)...); });
  });
#endif
  cuda::check_launch(stream, name);
}

/// Blocks of kBlock threads for a loop over `count` elements; for_each_index() covers the rest.
inline dim3 blocks_for(Index count) {
  return dim3(static_cast<unsigned>(std::min<Index>((count + kBlock - 1) / kBlock, 65536)));
}

/// Calls f(i) for this thread's indices below `count`.
template <class F>
__device__ void for_each_index(Index count, F&& f) {
  const Index stride = Index{gridDim.x} * blockDim.x;
  for (Index i = Index{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) f(i);
}

/// Returns to every lane f over the values of the 32 lanes, combined in a fixed order.
template <class T, class F>
__device__ T warp_reduce(T value, F&& f) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = f(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
  return value;
}

/// Returns to every thread of a one-dimensional block of whole warps f over all their values, combined in a
/// fixed order. f(identity, x) is x. All threads must call it.
template <class T, class F>
__device__ T block_reduce(T value, T identity, F&& f) {
  __shared__ T of_warps[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  value = warp_reduce(value, f);
  __syncthreads();  // an earlier call's reads must be done
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  return warp_reduce(lane < static_cast<int>(blockDim.x) / kWarp ? of_warps[lane] : identity, f);
}

template <class T>
__device__ T block_sum(T value) {
  return block_reduce(value, T(0), [](T a, T b) { return a + b; });
}

}  // namespace tapeformer::kernels
