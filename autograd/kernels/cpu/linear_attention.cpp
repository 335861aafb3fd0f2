#include <tapeformer/autograd/kernels/cpu/block_product.h>
#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/linear_attention_head.h>

namespace tapeformer::kernels {
namespace {

/// One thread, with vectors.
template <class T>
struct ThreadTeam {
  static Index leading(Index columns) { return kernels::leading<T>(columns); }

  void product(Index rows, Index columns, Index depth, const T* a, Index a_row, Index a_step, const T* b,
               Index b_row, T* c, Index c_row, bool add) const {
    block_product<T>(rows, columns, depth, {a, a_row, a_step}, {b, b_row}, c, c_row, add);
  }
  void transpose(Index rows, Index columns, const T* from, Index from_row, T* to, Index to_row) const {
    transpose_block(rows, columns, from, from_row, to, to_row);
  }
  template <class F>
  void grid(Index rows, Index columns, const F& f) const {
    for (Index i = 0; i < rows; ++i) {
#pragma omp simd
      for (Index j = 0; j < columns; ++j) f(i, j);
    }
  }
  void exponentials(Index count, const T* x, T* y) const {
    map_simd(
        Index{0}, count, y, [](const auto& v) { return xsimd::exp(v); }, x);
  }
  template <class F>
  static T sum(Index count, const F& f) {
    T total(0);
#pragma omp simd reduction(+ : total)
    for (Index i = 0; i < count; ++i) total += f(i);
    return total;
  }
};

template <class T>
using Head = LinearAttentionHead<ThreadTeam<T>, T>;

/// Calls run(head) for all heads, `products` times the multiply-adds of a token with a state.
template <class T, class Run>
void for_each_head(const LinearAttention& n, const LinearAttentionOperands<T>& x, bool backward,
                   Index products, const Run& run) {
  const LinearAttentionMemory<T> memory(ThreadTeam<T>(), n, nullptr);
  parallel_ranges(n.sequences(), n.length * products * n.state_size() / kLanes<T>, [&](Index from, Index to) {
    T* const own = thread_memory<Head<T>, T>(backward ? memory.of_both : memory.of_forward);
    for (Index head = from; head < to; ++head) run(Head<T>(n, x, head, own));
  });
}

}  // namespace

template <class T>
void linear_attention_forward(Cpu, const LinearAttention& n, const LinearAttentionOperands<T>& x, T* y,
                              Wide<T>* kept, Wide<T>* last) {
  for_each_head(n, x, false, 3, [&](Head<T> head) { head.forward(y, kept, last); });
}

template <class T>
void linear_attention_backward(Cpu, const LinearAttention& n, const LinearAttentionOperands<T>& x,
                               const Wide<T>* kept, const T* dy, const Wide<T>* dlast,
                               const LinearAttentionGradients<T>& to) {
  for_each_head(n, x, true, 9, [&](Head<T> head) { head.backward(kept, dy, dlast, to); });
}

#define INSTANTIATE(T)                                                                                       \
  template void linear_attention_forward(Cpu, const LinearAttention&, const LinearAttentionOperands<T>&, T*, \
                                         T*, T*);                                                            \
  template void linear_attention_backward(Cpu, const LinearAttention&, const LinearAttentionOperands<T>&,    \
                                          const T*, const T*, const T*, const LinearAttentionGradients<T>&);
TAPEFORMER_CPU_TYPES(INSTANTIATE)

}  // namespace tapeformer::kernels
