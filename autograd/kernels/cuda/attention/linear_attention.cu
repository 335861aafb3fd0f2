#include <tapeformer/autograd/kernels/cuda/device.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>
#include <tapeformer/autograd/kernels/linear_attention_head.h>

namespace tapeformer::kernels {
namespace {

/// A block, whose threads divide the elements of each result among them and wait for each other after it.
/// Their operands are in the device's memory, and for the most part in its caches.
template <class W>
struct BlockTeam {
  TAPEFORMER_HOST_DEVICE static Index leading(Index columns) { return columns; }

  template <class F>
  __device__ void grid(Index rows, Index columns, const F& f) const {
    for (int i = threadIdx.x; i < static_cast<int>(rows * columns); i += static_cast<int>(blockDim.x))
      f(Index{i / static_cast<int>(columns)}, Index{i % static_cast<int>(columns)});
    __syncthreads();
  }
  __device__ void product(Index rows, Index columns, Index depth, const W* a, Index a_row, Index a_step,
                          const W* b, Index b_row, W* c, Index c_row, bool add) const {
    grid(rows, columns, [&](Index i, Index j) {
      W sum(0);
      for (Index k = 0; k < depth; ++k) sum += a[i * a_row + k * a_step] * b[k * b_row + j];
      W& to = c[i * c_row + j];
      to = add ? to + sum : sum;
    });
  }
  __device__ void transpose(Index rows, Index columns, const W* from, Index from_row, W* to,
                            Index to_row) const {
    grid(rows, columns, [&](Index i, Index j) { to[j * to_row + i] = from[i * from_row + j]; });
  }
  __device__ void exponentials(Index count, const W* x, W* y) const {
    grid(1, count, [&](Index, Index i) { y[i] = exp(x[i]); });
  }
  template <class F>
  __device__ static W sum(Index count, const F& f) {
    W total(0);
    for (Index i = 0; i < count; ++i) total += f(i);
    return total;
  }
};

template <class T>
using Head = LinearAttentionHead<BlockTeam<Wide<T>>, T>;

/// One block for each head of each sequence, with `numbers` of the memory.
template <class T>
__global__ void __launch_bounds__(kBlock)
    forward_kernel(LinearAttention n, LinearAttentionOperands<T> x, Index numbers, Wide<T>* memory, T* y,
                   Wide<T>* kept, Wide<T>* last) {
  Head<T>(n, x, blockIdx.x, memory + blockIdx.x * numbers).forward(y, kept, last);
}

template <class T>
__global__ void __launch_bounds__(kBlock)
    backward_kernel(LinearAttention n, LinearAttentionOperands<T> x, Index numbers, Wide<T>* memory,
                    const Wide<T>* kept, const T* dy, const Wide<T>* dlast, LinearAttentionGradients<T> to) {
  Head<T>(n, x, blockIdx.x, memory + blockIdx.x * numbers).backward(kept, dy, dlast, to);
}

template <class T>
LinearAttentionMemory<Wide<T>> sizes_of(const LinearAttention& n) {
  return {BlockTeam<Wide<T>>(), n, nullptr};
}

}  // namespace

template <class T>
void linear_attention_forward(Cuda on, const LinearAttention& n, const LinearAttentionOperands<T>& x, T* y,
                              Wide<T>* kept, Wide<T>* last) {
  const Index numbers = sizes_of<T>(n).of_forward;
  const Scratch<Wide<T>> memory(on, n.sequences() * numbers);
  launch(on, "linear_attention", forward_kernel<T>, n.sequences(), n, x, numbers, memory.data(), y, kept,
         last);
}

template <class T>
void linear_attention_backward(Cuda on, const LinearAttention& n, const LinearAttentionOperands<T>& x,
                               const Wide<T>* kept, const T* dy, const Wide<T>* dlast,
                               const LinearAttentionGradients<T>& to) {
  const Index numbers = sizes_of<T>(n).of_both;
  const Scratch<Wide<T>> memory(on, n.sequences() * numbers);
  launch(on, "linear_attention", backward_kernel<T>, n.sequences(), n, x, numbers, memory.data(), kept, dy,
         dlast, to);
}

#define INSTANTIATE(T)                                                                                     \
  template void linear_attention_forward(Cuda, const LinearAttention&, const LinearAttentionOperands<T>&,  \
                                         T*, Wide<T>*, Wide<T>*);                                          \
  template void linear_attention_backward(Cuda, const LinearAttention&, const LinearAttentionOperands<T>&, \
                                          const Wide<T>*, const T*, const Wide<T>*,                        \
                                          const LinearAttentionGradients<T>&);
TAPEFORMER_CUDA_TYPES(INSTANTIATE)

}  // namespace tapeformer::kernels
