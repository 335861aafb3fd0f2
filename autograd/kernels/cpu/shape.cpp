#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/shape.h>

#include <algorithm>

namespace tapeformer::kernels {

template <class T>
void copy_strided(Cpu, const Broadcast& view, const T* x, T* y) {
  const int last = view.axes - 1;
  const Index length = view.sizes[last], step = view.strides_a[last];
  if (length == 0) return;
  parallel_ranges(view.elements() / length, length, [&](Index from, Index to) {
    for (Index run = from; run < to; ++run) {
      const T* source = x + view.offsets(run, last).a;
      T* target = y + run * length;
      if (step == 1) {
        std::copy(source, source + length, target);
      } else {
        for (Index i = 0; i < length; ++i) target[i] = source[i * step];
      }
    }
  });
}

template <class T>
void copy_columns(Cpu, Index outer, Index width, Index width_x, Index from, Index width_y, Index to,
                  const T* x, T* y) {
  parallel_ranges(outer, width, [&](Index first, Index end) {
    for (Index o = first; o < end; ++o) {
      const T* source = x + o * width_x + from;
      std::copy(source, source + width, y + o * width_y + to);
    }
  });
}

template <class T>
void fill(Cpu, Index count, double value, T* y) {
  parallel_ranges(count, 1,
                  [&](Index from, Index to) { std::fill(y + from, y + to, static_cast<T>(value)); });
}

template <class T>
void gather(Cpu, Index outer, Index n, Index m, Index inner, const std::int32_t* index, const T* x, T* y) {
  parallel_ranges(outer * m, inner, [&](Index from, Index to) {
    for (Index row = from; row < to; ++row) {
      const T* block = x + row / m * n * inner;
      for (Index i = 0; i < inner; ++i) y[row * inner + i] = block[index[row * inner + i] * inner + i];
    }
  });
}

template <class T>
void scatter_add(Cpu, Index outer, Index n, Index m, Index inner, const std::int32_t* index, const T* x,
                 T* y) {
  parallel_ranges(outer, (n + m) * inner, [&](Index from, Index to) {
    std::fill(y + from * n * inner, y + to * n * inner, T(0));
    for (Index row = from * m; row < to * m; ++row) {
      T* block = y + row / m * n * inner;
      for (Index i = 0; i < inner; ++i) block[index[row * inner + i] * inner + i] += x[row * inner + i];
    }
  });
}

TAPEFORMER_CPU_KERNEL(copy_strided);
TAPEFORMER_CPU_KERNEL(copy_columns);
TAPEFORMER_CPU_KERNEL(fill);
TAPEFORMER_CPU_KERNEL(gather);
TAPEFORMER_CPU_KERNEL(scatter_add);

}  // namespace tapeformer::kernels
