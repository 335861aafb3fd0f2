#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/sum_by_halves.h>
#include <tapeformer/autograd/kernels/embedding.h>

#include <algorithm>
#include <numeric>

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
  // The positions of each id, in order, so that the number of threads does not change the sums.
  struct Order {};
  Index* const starts = thread_memory<Order, Index>(vocabulary + 1 + count);
  Index* const positions = starts + vocabulary + 1;
  std::fill_n(starts, vocabulary + 1, 0);
  for (Index i = 0; i < count; ++i) ++starts[ids[i] + 1];
  std::partial_sum(starts, starts + vocabulary + 1, starts);
  for (Index i = 0; i < count; ++i) positions[starts[ids[i]]++] = i;

  // A thread owns whole cache lines of columns.
  constexpr Index kLine = 64 / static_cast<Index>(sizeof(T));
  parallel_ranges((width + kLine - 1) / kLine, (count + vocabulary) * kLine, [&](Index from, Index to) {
    const Index begin = from * kLine, columns = std::min(to * kLine, width) - begin;
    const auto add_rows = [&](Index first, Index last, T* sum) {
      std::fill_n(sum, columns, T(0));
      for (Index k = first; k < last; ++k) {
        const T* d = dy + positions[k] * width + begin;
#pragma omp simd
        for (Index i = 0; i < columns; ++i) sum[i] += d[i];
      }
    };
    struct Row {};
    T* const sum = thread_memory<Row, T>(columns * (1 + halvings(count)));
    for (Index id = 0; id < vocabulary; ++id) {
      const Index first = id == 0 ? 0 : starts[id - 1], last = starts[id];  // starts are ends by now
      T* const row = dtable.to + id * width + begin;
      if (first == last) {
        if (!dtable.add) std::fill_n(row, columns, T(0));
        continue;
      }
      sum_by_halves(first, last, columns, add_rows, sum, sum + columns);
      for (Index i = 0; i < columns; ++i) dtable.put(id * width + begin + i, sum[i]);
    }
  });
}

TAPEFORMER_CPU_KERNEL(embedding_forward);
TAPEFORMER_CPU_KERNEL(embedding_backward);

}  // namespace tapeformer::kernels
