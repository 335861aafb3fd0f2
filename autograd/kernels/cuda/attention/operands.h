#pragma once

#include <tapeformer/autograd/kernels/attention.h>
#include <tapeformer/autograd/kernels/cuda/device.h>

#include <initializer_list>

namespace tapeformer::kernels {

#if !defined(__CUDACC__)
/// Its pointers are checked as if each were an argument.
template <class T>
void require_argument(const char* kernel, cudaStream_t stream, const AttentionOperands<T>& x) {
  for (const void* pointer : std::initializer_list<const void*>{x.query, x.key, x.value, x.weight, x.bias,
                                                                x.relative, x.parameter, x.sinks})
    emulator::require_device_memory(kernel, stream, pointer, 0);
}
#endif

}  // namespace tapeformer::kernels
