#include <tapeformer/autograd/cuda/graph.h>
#include <tapeformer/autograd/kernels/cuda/device.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// Fits easily into a kernel's arguments.
constexpr int kNumbers = 128;
struct Numbers {
  std::uint64_t of[kNumbers];
};

__global__ void set_numbers_kernel(int count, Numbers numbers, std::uint64_t* to) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) to[i] = numbers.of[i];
}

}  // namespace

namespace cuda {

void set_numbers(int device, std::uint64_t* to, const std::uint64_t* numbers, Index count) {
  for (Index first = 0; first < count; first += kNumbers) {
    const int size = static_cast<int>(std::min<Index>(kNumbers, count - first));
    Numbers part{};
    std::copy(numbers + first, numbers + first + size, part.of);
    kernels::launch(kernels::Cuda{device}, "set_numbers", set_numbers_kernel, dim3(1), dim3(kNumbers), 0,
                    size, part, to + first);
  }
}

}  // namespace cuda
}  // namespace tapeformer
