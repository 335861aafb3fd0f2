#include <tapeformer/autograd/kernels/cuda/pack.h>

#include <algorithm>

namespace tapeformer {
namespace {

using kernels::kBlock;

/// Calls `use` with a typed null pointer.
template <class Use>
void with_type(DType type, Use&& use) {
  switch (type) {
    case DType::f32: return use(static_cast<float*>(nullptr));
    case DType::f64: return use(static_cast<double*>(nullptr));
    case DType::bf16: return use(static_cast<BFloat16*>(nullptr));
    case DType::i32: return use(static_cast<std::int32_t*>(nullptr));
    case DType::boolean: return use(static_cast<bool*>(nullptr));
  }
}

template <class T>
__global__ void fill_values_kernel(Index count, bool packed, T value, T* to) {
  kernels::for_each_pack_of_grid<kernels::kCommonPack<T>>(count, packed, [&](auto size, Index i) {
    kernels::Pack<T, decltype(size)::value> values;
    for (T& each : values.of) each = value;
    kernels::store_pack(to + i, values);
  });
}

template <class T>
constexpr bool kFitsFloat = !std::is_same<T, double>::value && !std::is_same<T, std::int32_t>::value;

template <class From, class To>
__global__ void convert_kernel(Index count, bool packed, const From* from, To* to) {
  using Between = std::conditional_t<kFitsFloat<From> && kFitsFloat<To>, float, double>;
  kernels::for_each_pack_of_grid<kernels::kCommonPack<From, To>>(count, packed, [&](auto size, Index i) {
    constexpr int N = decltype(size)::value;
    const auto values = kernels::load_pack<N>(from + i);
    kernels::Pack<To, N> converted;
#pragma unroll
    for (int k = 0; k < N; ++k) converted.of[k] = static_cast<To>(static_cast<Between>(values.of[k]));
    kernels::store_pack(to + i, converted);
  });
}

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
    kernels::launch(kernels::Cuda{device}, "set_numbers", set_numbers_kernel, {1, kNumbers}, size, part,
                    to + first);
  }
}

void fill(int device, DType type, Index count, double value, void* to) {
  with_type(type, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    T* const start = static_cast<T*>(to);
    const bool packed = kernels::are_packed(start);
    kernels::launch(kernels::Cuda{device}, "fill", fill_values_kernel<T>,
                    kernels::blocks_for_packs<kernels::kCommonPack<T>>(count, packed), count, packed,
                    static_cast<T>(value), start);
  });
}

void convert(int device, DType from_type, const void* from, DType to_type, void* to, Index count) {
  with_type(from_type, [&](auto* from_null) {
    with_type(to_type, [&](auto* to_null) {
      using From = std::remove_pointer_t<decltype(from_null)>;
      using To = std::remove_pointer_t<decltype(to_null)>;
      const From* const source = static_cast<const From*>(from);
      To* const start = static_cast<To*>(to);
      const bool packed = kernels::are_packed(source, start);
      kernels::launch(kernels::Cuda{device}, "convert", convert_kernel<From, To>,
                      kernels::blocks_for_packs<kernels::kCommonPack<From, To>>(count, packed), count, packed,
                      source, start);
    });
  });
}

}  // namespace cuda
}  // namespace tapeformer
