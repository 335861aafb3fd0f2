#include <tapeformer/autograd/kernels/cpu/block_product.h>
#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/linear_attention_head.h>

#include <limits>

namespace tapeformer::kernels {
namespace {

/// One thread, with vectors.
template <class T>
struct ThreadTeam {
  static constexpr bool kTransposes = true, kStatesAreFar = false;
  using Number = T;
  using Part = T*;
  static Part part(T* memory, bool, Index first) { return memory != nullptr ? memory + first : nullptr; }
  static Index leading(Index columns) { return kernels::leading<T>(columns); }

  void product(Index rows, Index columns, Index depth, const T* a, Index a_row, Index a_step, const T* b,
               Index b_row, T* c, Index c_row, bool add) const {
    block_product<T>(rows, columns, depth, {a, a_row, a_step}, {b, b_row}, c, c_row, add);
  }
  template <class F>
  void grid(Index rows, Index columns, const F& f) const {
    for (Index i = 0; i < rows; ++i) {
#pragma omp simd
      for (Index j = 0; j < columns; ++j) f(i, j);
    }
  }
  /// Calls put(i, j, get(i, j)), where get reads tokens or states.
  template <class Get, class Put>
  void load(Index rows, Index columns, const Get& get, const Put& put) const {
    grid(rows, columns, [&](Index i, Index j) { put(i, j, get(i, j)); });
  }
  void exponentials(Index rows, Index columns, const T* x, Index x_row, T* y, Index y_row) const {
    for (Index i = 0; i < rows; ++i) {
      map_simd(
          Index{0}, columns, y + i * y_row, [](const auto& v) { return exp_lanes(v); }, x + i * x_row);
    }
  }
  /// out[0] = get(0, j), out[i * step] = combine(out[(i - 1) * step], get(i, j)), for each column j.
  template <class Get, class Combine>
  void scan(Index rows, Index columns, T* out, Index step, const Get& get, const Combine& combine) const {
    grid(1, columns, [&](Index, Index j) { out[j] = get(0, j); });
    for (Index i = 1; i < rows; ++i) {
      T* const own = out + i * step;
      grid(1, columns, [&](Index, Index j) { own[j] = combine(own[j - step], get(i, j)); });
    }
  }
  /// Calls put(i, the sum over j of f(i, j)).
  template <class F, class Put>
  void sums(Index rows, Index columns, const F& f, const Put& put) const {
    for (Index i = 0; i < rows; ++i) {
      T total(0);
#pragma omp simd reduction(+ : total)
      for (Index j = 0; j < columns; ++j) total += f(i, j);
      put(i, total);
    }
  }
  void product_transposed(Index rows, Index columns, Index depth, const T* a, Index a_row, const T* b,
                          Index b_row, T* b_columns, Index columns_row, T* c, Index c_row) const {
    transpose_block(columns, depth, b, b_row, b_columns, columns_row);
    product(rows, columns, depth, a, a_row, 1, b_columns, columns_row, c, c_row, false);
  }
  /// c = before + a b, after before's rows have decayed unless `decays` is nullptr.
  void add_to_decayed(Index rows, Index columns, Index depth, const T* decays, const T* before, const T* a,
                      Index a_step, const T* b, T* c, Index row) const {
    if (decays != nullptr || before != c) {
      grid(rows, columns, [&](Index i, Index j) {
        const Index at = i * row + j;
        c[at] = decays != nullptr ? decays[i] * before[at] : before[at];
      });
    }
    product(rows, columns, depth, a, 1, a_step, b, row, c, row, true);
  }
  void prefetch(Index, Index, const void*, Index) const {}
  /// rows_i += the sum of a(i, k) results_k over the rows k before it, and results_i = factors_i rows_i.
  /// `down`, from the last row on: rows_i -= the sum of a(k, i) results_k, and results_i = -factors_i rows_i.
  void substitute(bool down, Index count, Index columns, const T* a, Index a_row, const T* factors, T* rows,
                  T* results, Index row) const {
    for (Index n = 0; n < count; ++n) {
      const Index t = down ? count - 1 - n : n, first = down ? t + 1 : 0;
      T *const own = rows + t * row, *const result = results + t * row, sign = down ? T(-1) : T(1);
      const auto negate = [&] { grid(1, columns, [&](Index, Index j) { own[j] = -own[j]; }); };
      if (n > 0) {
        if (down) negate();
        product(1, columns, n, a + (down ? first * a_row + t : t * a_row), 0, down ? a_row : 1,
                results + first * row, row, own, 0, true);
        if (down) negate();
      }
      grid(1, columns, [&](Index, Index j) { result[j] = sign * factors[t] * own[j]; });
    }
  }

  /// For each token in turn, with all keys as they have decayed until then.
  void pairs_by_channel(const LinearAttentionMemory<ThreadTeam>& m, Index first, Index rows, Index count,
                        Index width) const {
    constexpr Index C = kLinearAttentionChunk;
    const Index row = m.row_C;
    T* const columns = m.k_columns;
    grid(width, C, [&](Index i, Index j) { columns[i * row + j] = T(0); });
    for (Index t = 0; t < count; ++t) {
      const T *const key = m.qk + (count + t) * m.row_D, *const decay = m.decay + t * m.row_D;
      grid(width, C, [&](Index i, Index j) {
        T& k = columns[i * row + j];
        k = j == t ? key[i] : k * decay[i];
      });
      product(rows / count, C, width, m.qk + (first + t) * m.row_D, count * m.row_D, 1, m.k_columns, row,
              m.pa + (first + t) * row, count * row, false);
    }
  }
  /// With keys that decay as a query moves on, and queries that decay as a key moves back.
  void share_by_channel(const LinearAttentionMemory<ThreadTeam>& m, Index rows, Index count,
                        Index width) const {
    const Index row = m.row_D, row_C = m.row_C, kinds = rows / count;
    const T* const keys = m.qk + count * row;
    grid(rows, width, [&](Index i, Index j) { m.decayed[i * row + j] = keys[i % count * row + j]; });
    for (Index t = 1; t < count; ++t) {
      grid(t, width, [&](Index i, Index j) { m.decayed[i * row + j] *= m.decay[t * row + j]; });
      product(kinds, width, t, m.dpa + t * row_C, count * row_C, 1, m.decayed, row, m.dqk + t * row,
              count * row, true);
    }
    grid(rows, width, [&](Index i, Index j) { m.decayed[i * row + j] = m.qk[i * row + j]; });
    grid(count, width, [&](Index i, Index j) { m.dk[i * row + j] = T(0); });
    for (Index t = count - 2; t >= 0; --t) {
      const Index later = count - 1 - t;
      for (Index kind = 0; kind < kinds; ++kind) {
        const Index next = kind * count + t + 1;
        grid(later, width,
             [&](Index i, Index j) { m.decayed[(next + i) * row + j] *= m.decay[(t + 1) * row + j]; });
        product(1, width, later, m.dpa + next * row_C + t, 0, row_C, m.decayed + next * row, row,
                m.dk + t * row, 0, true);
      }
    }
  }
};

template <class T>
using Head = LinearAttentionHead<ThreadTeam<T>, T>;

/// Calls run(head) for all heads. A token costs `products` products with a state.
template <class T, class Run>
void for_each_head(const LinearAttention& n, const LinearAttentionOperands<T>& x, bool backward,
                   Index products, const Run& run) {
  constexpr Index kRoom = std::numeric_limits<Index>::max();
  const LinearAttentionMemory<ThreadTeam<T>> sizes(n, backward, nullptr, kRoom);
  parallel_ranges(n.sequences(), n.length * products * n.state_size() / kLanes<T>, [&](Index from, Index to) {
    T* const own = thread_memory<Head<T>, T>(sizes.near + sizes.of_states);
    const LinearAttentionMemory<ThreadTeam<T>> memory(n, backward, own, kRoom);
    for (Index head = from; head < to; ++head) run(Head<T>(n, x, head, memory));
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

TAPEFORMER_CPU_KERNEL(linear_attention_forward);
TAPEFORMER_CPU_KERNEL(linear_attention_backward);

}  // namespace tapeformer::kernels
