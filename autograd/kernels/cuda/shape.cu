#include <tapeformer/autograd/kernels/cuda/map.h>
#include <tapeformer/autograd/kernels/shape.h>

namespace tapeformer::kernels {
namespace {

template <class T>
__global__ void copy_strided_kernel(Index count, bool packed, Broadcast view, const T* x, T* y) {
  for_each_pack_of_grid<kCommonPack<T>>(count, packed, [&](auto size, Index i) {
    Index offset = 0, rest = i;
    for (int axis = view.axes - 1; axis > 0; --axis) {
      const Division place = divide(rest, view.sizes[axis]);
      offset += place.remainder * view.strides_a[axis];
      rest = place.quotient;
    }
    store_pack(y + i, load_pack<decltype(size)::value>(x + offset + rest * view.strides_a[0]));
  });
}

template <class T>
__global__ void copy_columns_kernel(Index count, bool packed, Index width, Index width_x, Index from,
                                    Index width_y, Index to, const T* x, T* y) {
  for_each_pack_of_grid<kCommonPack<T>>(count, packed, [&](auto size, Index i) {
    const Division place = divide(i, width);
    store_pack(y + place.quotient * width_y + to + place.remainder,
               load_pack<decltype(size)::value>(x + place.quotient * width_x + from + place.remainder));
  });
}

/// Block o of index [outer, m, inner] picks from block o of x [outer, n, inner].
/// Indices are checked while these kernels already run: those outside [0, n) give zeros, or add nothing.

template <class T>
__global__ void gather_kernel(Index count, Index n, Index m, Index inner, const std::int32_t* index,
                              const T* x, T* y) {
  for_each_index(count, [&](Index i) {
    const Division row = divide(i, inner);
    const bool is_there = index[i] >= 0 && index[i] < n;
    y[i] = is_there ? x[(divide(row.quotient, m).quotient * n + index[i]) * inner + row.remainder] : T(0);
  });
}

/// The first of the elements with one destination adds them all, in order; the others do nothing.
template <class T>
__global__ void scatter_add_kernel(Index count, Index n, Index m, Index inner, const std::int32_t* index,
                                   const T* x, T* y) {
  for_each_index(count, [&](Index i) {
    if (index[i] < 0 || index[i] >= n) return;
    const Division row = divide(i, inner), block = divide(row.quotient, m);
    const Index first = block.quotient * m * inner + row.remainder, end = first + m * inner;
    for (Index other = first; other < i; other += inner)
      if (index[other] == index[i]) return;
    auto sum = static_cast<Wide<T>>(x[i]);
    for (Index other = i + inner; other < end; other += inner)
      if (index[other] == index[i]) sum += static_cast<Wide<T>>(x[other]);
    y[(block.quotient * n + index[i]) * inner + row.remainder] = static_cast<T>(sum);
  });
}

}  // namespace

template <class T>
void copy_strided(Cuda on, const Broadcast& view, const T* x, T* y) {
  constexpr int N = kCommonPack<T>;
  const int last = view.axes - 1;
  Index count = 1;
  bool packed = are_packed(x, y) && view.strides_a[last] == 1 && view.sizes[last] % N == 0;
  for (int axis = 0; axis < view.axes; ++axis) {
    count *= view.sizes[axis];
    packed = packed && (axis == last || view.strides_a[axis] % N == 0);
  }
  launch(on, "copy_strided", copy_strided_kernel<T>, blocks_for_packs<N>(count, packed), count, packed, view,
         x, y);
}

template <class T>
void copy_columns(Cuda on, Index outer, Index width, Index width_x, Index from, Index width_y, Index to,
                  const T* x, T* y) {
  constexpr int N = kCommonPack<T>;
  const Index count = outer * width;
  const bool packed = are_packed(x, y) && (width | width_x | from | width_y | to) % N == 0;
  launch(on, "copy_columns", copy_columns_kernel<T>, blocks_for_packs<N>(count, packed), count, packed, width,
         width_x, from, width_y, to, x, y);
}

template <class T>
void fill(Cuda on, Index count, double value, T* y) {
  cuda::fill(on.device, dtype_of<T>(), count, value, y);
}

template <class T>
void gather(Cuda on, Index outer, Index n, Index m, Index inner, const std::int32_t* index, const T* x,
            T* y) {
  const Index count = outer * m * inner;
  launch(on, "gather", gather_kernel<T>, blocks_for(count), count, n, m, inner, index, x, y);
}

template <class T>
void scatter_add(Cuda on, Index outer, Index n, Index m, Index inner, const std::int32_t* index, const T* x,
                 T* y) {
  fill(on, outer * n * inner, 0, y);
  const Index count = outer * m * inner;
  launch(on, "scatter_add", scatter_add_kernel<T>, blocks_for(count), count, n, m, inner, index, x, y);
}

TAPEFORMER_CUDA_KERNEL(copy_strided);
TAPEFORMER_CUDA_KERNEL(copy_columns);
TAPEFORMER_CUDA_KERNEL(fill);
TAPEFORMER_CUDA_KERNEL(gather);
TAPEFORMER_CUDA_KERNEL(scatter_add);

}  // namespace tapeformer::kernels
