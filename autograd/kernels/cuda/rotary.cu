#include <tapeformer/autograd/kernels/cuda/device.h>
#include <tapeformer/autograd/kernels/rotary.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

/// As many as travel with a launch.
struct Frequencies {
  static constexpr Index kMost = 128;
  double of_pair[kMost];
};

/// Pairs [first, first + some) of every position.
template <class T>
__global__ void rotary_table_kernel(Index count, Index pairs, Index first, Index some,
                                    Frequencies frequencies, const std::int32_t* positions, T* table) {
  for_each_index(count * some, [&](Index i) {
    const Index p = i / some, pair = i % some;
    const double angle = static_cast<double>(positions[p]) * frequencies.of_pair[pair];
    T* cosine = table + 2 * p * pairs + first + pair;
    cosine[0] = static_cast<T>(cos(angle));
    cosine[pairs] = static_cast<T>(sin(angle));
  });
}

/// A block a row, a thread an element: it needs its partner too.
template <class T>
__global__ void rotate_kernel(Rotation s, const Wide<T>* table, const T* x, Write<T> y) {
  const Index row = blockIdx.x;
  const Wide<T>* cosine = table + row % s.period * 2 * s.pairs;
  const Wide<T>* sine = cosine + s.pairs;
  const Wide<T> sign(s.inverse ? -1 : 1);
  const bool interleaved = s.layout == RotaryLayout::interleaved;
  const T* line = x + row * s.row_width;
  for (Index i = threadIdx.x; i < s.row_width; i += blockDim.x) {
    const Index c = i % s.head_width;  // within its head
    const auto own = static_cast<Wide<T>>(line[i]);
    Wide<T> value = own;
    if (i < s.heads * s.head_width && c < 2 * s.pairs) {
      const bool is_first = interleaved ? c % 2 == 0 : c < s.pairs;
      const Index pair = interleaved ? c / 2 : c % s.pairs, distance = interleaved ? 1 : s.pairs;
      const auto other = static_cast<Wide<T>>(line[is_first ? i + distance : i - distance]);
      const Wide<T> turned = sign * sine[pair] * other;
      value = own * cosine[pair] + (is_first ? -turned : turned);
    }
    y.put(row * s.row_width + i, value);
  }
}

}  // namespace

template <class T>
void rotary_table(Cuda on, Index count, Index pairs, const double* frequencies, const std::int32_t* positions,
                  T* table) {
  for (Index first = 0; first < pairs; first += Frequencies::kMost) {
    const Index some = std::min(Frequencies::kMost, pairs - first);
    Frequencies part;
    std::copy_n(frequencies + first, some, part.of_pair);
    launch(on, "rotary_table", rotary_table_kernel<T>, blocks_for(count * some), dim3(kBlock), 0, count,
           pairs, first, some, part, positions, table);
  }
}

template <class T>
void rotate(Cuda on, const Rotation& s, const Wide<T>* table, const T* x, Write<T> y) {
  if (s.row_width == 0) return;
  launch(on, "rotate", rotate_kernel<T>, dim3(static_cast<unsigned>(s.rows)), dim3(kBlock), 0, s, table, x,
         y);
}

template void rotary_table(Cuda, Index, Index, const double*, const std::int32_t*, float*);
template void rotary_table(Cuda, Index, Index, const double*, const std::int32_t*, double*);
template void rotate(Cuda, const Rotation&, const float*, const float*, Write<float>);
template void rotate(Cuda, const Rotation&, const double*, const double*, Write<double>);
template void rotate(Cuda, const Rotation&, const float*, const BFloat16*, Write<BFloat16>);

}  // namespace tapeformer::kernels
