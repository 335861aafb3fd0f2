#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/embedding.h>

#include <algorithm>

namespace tapeformer::kernels {

template <class T>
void embedding_forward(Cpu, Index count, Index, Index width, const std::int32_t* ids, const T* table, T* y) {
  parallel_ranges(count, width, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) std::copy_n(table + ids[i] * width, width, y + i * width);
  });
}

template <class T>
void embedding_backward(Cpu, Index count, Index vocabulary, Index width, const std::int32_t* ids, const T* dy,
                        Write<Wide<T>> dtable) {
  if (!dtable.add) {
    parallel_ranges(vocabulary, width, [&](Index from, Index to) {
      std::fill(dtable.to + from * width, dtable.to + to * width, T(0));
    });
  }
  // A thread owns whole cache lines of columns, so that a row's sum has the order of ids on any thread count.
  constexpr Index kLine = 64 / static_cast<Index>(sizeof(T));
  parallel_ranges((width + kLine - 1) / kLine, count * kLine, [&](Index from, Index to) {
    const Index begin = from * kLine, columns = std::min(to * kLine, width) - begin;
    for (Index i = 0; i < count; ++i) {
      T* sum = dtable.to + ids[i] * width + begin;
      const T* d = dy + i * width + begin;
#pragma omp simd
      for (Index k = 0; k < columns; ++k) sum[k] += d[k];
    }
  });
}

#define INSTANTIATE(T)                                                                          \
  template void embedding_forward(Cpu, Index, Index, Index, const std::int32_t*, const T*, T*); \
  template void embedding_backward(Cpu, Index, Index, Index, const std::int32_t*, const T*, Write<T>);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace tapeformer::kernels
