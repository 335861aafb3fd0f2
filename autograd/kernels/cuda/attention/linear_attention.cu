#include <tapeformer/autograd/kernels/cuda/attention/linear_attention_block.h>
#include <tapeformer/autograd/kernels/cuda/attention/paths.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>
#include <tapeformer/autograd/kernels/linear_attention_head.h>

namespace tapeformer::kernels {
namespace {

template <class T, bool kShared>
using Memory = LinearAttentionMemory<LinearAttentionBlock<Wide<T>, kShared>>;

/// The head of this block, with what is far of its memory.
template <class T, bool kShared>
__device__ LinearAttentionHead<LinearAttentionBlock<Wide<T>, kShared>, T> own_head(
    const LinearAttention& n, const LinearAttentionOperands<T>& x, Memory<T, kShared> memory, Wide<T>* far) {
  using W = Wide<T>;
  memory.states = far + blockIdx.x * (memory.of_states + memory.far);
  W* const own_far = memory.states + memory.of_states;
  const int from = kShared ? 0 : 4;
  // The places between rows are read as well.
  for (int i = static_cast<int>(threadIdx.x); i < memory.near; i += kBlock)
    dynamic_shared<W>()[from + i] = W(0);
  for (Index i = threadIdx.x; i < memory.far; i += kBlock) own_far[i] = W(0);
  if (!kShared && threadIdx.x == 0) *dynamic_shared<W*>() = own_far;
  __syncthreads();
  return {n, x, blockIdx.x, memory};
}

template <class T, bool kShared>
__global__ void __launch_bounds__(kBlock, kShared ? 2 : 1)
    forward_kernel(LinearAttention n, LinearAttentionOperands<T> x, Memory<T, kShared> memory, Wide<T>* far,
                   T* y, Wide<T>* kept, Wide<T>* last) {
  own_head<T, kShared>(n, x, memory, far).forward(y, kept, last);
}

template <class T, bool kShared>
__global__ void __launch_bounds__(kBlock, kShared ? 2 : 1)
    backward_kernel(LinearAttention n, LinearAttentionOperands<T> x, Memory<T, kShared> memory, Wide<T>* far,
                    const Wide<T>* kept, const T* dy, const Wide<T>* dlast, LinearAttentionGradients<T> to) {
  own_head<T, kShared>(n, x, memory, far).backward(kept, dy, dlast, to);
}

/// Calls run(memory, grid, far) for one block for each head, whose working memory is shared as far as it
/// fits.
template <class T, class Run>
void launch_with(Cuda on, const LinearAttention& n, bool backward, const Run& run) {
  const Index room = static_cast<Index>(shared_room(on) / sizeof(Wide<T>));
  const auto with = [&](const auto& memory, Index others) {
    const Scratch<Wide<T>> far(on, n.sequences() * (memory.of_states + memory.far));
    const auto numbers = static_cast<std::size_t>(memory.near + others);
    run(memory, Grid(n.sequences(), kBlock, numbers * sizeof(Wide<T>)), far.data());
  };
  const Memory<T, true> shared(n, backward, nullptr, room);
  if (shared.far == 0)
    with(shared, 0);
  else
    with(Memory<T, false>(n, backward, nullptr, room - 4), 4);
}

}  // namespace

template <class T>
void linear_attention_forward(Cuda on, const LinearAttention& n, const LinearAttentionOperands<T>& x, T* y,
                              Wide<T>* kept, Wide<T>* last) {
  launch_with<T>(on, n, false, [&](const auto& memory, const Grid& grid, Wide<T>* far) {
    constexpr bool kShared = std::is_same<decltype(memory), const Memory<T, true>&>::value;
    launch(on, "linear_attention", forward_kernel<T, kShared>, grid, n, x, memory, far, y, kept, last);
  });
}

template <class T>
void linear_attention_backward(Cuda on, const LinearAttention& n, const LinearAttentionOperands<T>& x,
                               const Wide<T>* kept, const T* dy, const Wide<T>* dlast,
                               const LinearAttentionGradients<T>& to) {
  launch_with<T>(on, n, true, [&](const auto& memory, const Grid& grid, Wide<T>* far) {
    constexpr bool kShared = std::is_same<decltype(memory), const Memory<T, true>&>::value;
    launch(on, "linear_attention", backward_kernel<T, kShared>, grid, n, x, memory, far, kept, dy, dlast, to);
  });
}

TAPEFORMER_CUDA_KERNEL(linear_attention_forward);
TAPEFORMER_CUDA_KERNEL(linear_attention_backward);

}  // namespace tapeformer::kernels
