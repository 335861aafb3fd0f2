#include <tapeformer/autograd/kernels/cuda/map.h>
#include <tapeformer/autograd/kernels/cuda/rows.h>
#include <tapeformer/autograd/kernels/normalization.h>
#include <tapeformer/autograd/kernels/reduce.h>

namespace tapeformer::kernels {
namespace {

/// A thread's share of an item: the packs at first, first + a step ... before `end`, from `start` on.
struct HeadItem {
  bool is_head;
  Index number;  // among the heads of all rows
  bool is_query;
  Index start, first, end;
};

/// Teams of `lanes` threads, a power of two, which take a row's items one at a time: its heads, and the
/// numbers behind them, n to an item. A lane takes every lanes-th pack.
struct HeadTeams {
  HeadNorms s;
  int lanes;
  Index items;

  Index blocks() const { return row_blocks(tiles_of(s.rows * items, kBlock / lanes)); }
  /// Calls use(item) for this thread's items, and with empty ones while others of its warp still have one.
  template <int N, class Use>
  __device__ void for_each(Use&& use) const {
    const Index teams = kBlock / lanes, count = s.rows * items;
    const int lane = static_cast<int>(threadIdx.x) % lanes, team = static_cast<int>(threadIdx.x) / lanes;
    const Index of_warp = kWarp / lanes, before = team % of_warp;
    for (Index i = blockIdx.x * teams + team; i - before < count; i += gridDim.x * teams) {
      const bool is_here = i < count;
      const auto [row, at] = divide(is_here ? i : 0, items);
      const Index left = is_here ? s.width - at * s.n : 0;
      use(HeadItem{is_here && at < s.heads(), row * s.heads() + at, at < s.queries, row * s.width + at * s.n,
                   lane * N, left < s.n ? left : s.n});
    }
  }
  /// The sum over the lanes of a team. All threads of a warp must call it.
  template <class W>
  __device__ W sum(W value) const {
    for (int offset = lanes / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
    return value;
  }
};

/// True if all heads, and the numbers behind them, have a pack's alignment.
template <class T, class... Pointers>
bool heads_are_packed(const HeadNorms& s, const Pointers*... at) {
  return are_packed(at...) && (s.n | s.width) % kPackSize<T> == 0;
}

HeadTeams teams_of(const HeadNorms& s, int pack) {
  int lanes = 1;
  while (lanes < kWarp && lanes * pack < s.n) lanes *= 2;
  return {s, lanes, tiles_of(s.width, s.n)};
}

template <int N, class T>
__global__ void head_norms_forward_kernel(HeadTeams teams, const T* x, const T* query_weight,
                                          const T* key_weight, T* y, Wide<T>* rstd) {
  using W = Wide<T>;
  const HeadNorms& s = teams.s;
  teams.for_each<N>([&](const HeadItem& item) {
    const Index start = item.start, first = item.first, end = item.end;
    W squares(0);
    for (Index k = item.is_head ? first : end; k < end; k += teams.lanes * N) {
      const Pack<W, N> values = widened(load_pack<N>(x + start + k));
#pragma unroll
      for (int j = 0; j < N; ++j) squares += values.of[j] * values.of[j];
    }
    squares = teams.sum(squares);
    const W scale = W(1) / sqrt(squares / static_cast<W>(s.n) + static_cast<W>(s.epsilon));
    if (item.is_head && first == 0) rstd[item.number] = scale;
    const T* const weight = item.is_query ? query_weight : key_weight;
    for (Index k = first; k < end; k += teams.lanes * N) {
      Pack<T, N> own = load_pack<N>(x + start + k);
      if (item.is_head) {
        Pack<W, N> values = widened(own);
        const Pack<W, N> w = widened(load_pack<N>(weight + k));
#pragma unroll
        for (int j = 0; j < N; ++j) values.of[j] = values.of[j] * scale * w.of[j];
        own = narrowed<T>(values);
      }
      store_pack(y + start + k, own);
    }
  });
}

/// dx alone.
template <int N, class T>
__global__ void head_norms_backward_kernel(HeadTeams teams, const T* x, const T* query_weight,
                                           const T* key_weight, const Wide<T>* rstd, const T* dy,
                                           Write<T> dx) {
  using W = Wide<T>;
  const HeadNorms& s = teams.s;
  teams.for_each<N>([&](const HeadItem& item) {
    const Index start = item.start, first = item.first, end = item.end;
    const T* const weight = item.is_query ? query_weight : key_weight;
    const W scale = item.is_head ? rstd[item.number] : W(1);
    // Calls use(k, g, xhat) for the packs of a head, with g = dy * weight.
    const auto for_each_pack = [&](auto&& use) {
      for (Index k = item.is_head ? first : end; k < end; k += teams.lanes * N) {
        Pack<W, N> gradient = widened(load_pack<N>(dy + start + k)),
                   normal = widened(load_pack<N>(x + start + k));
        const Pack<W, N> w = widened(load_pack<N>(weight + k));
#pragma unroll
        for (int j = 0; j < N; ++j) gradient.of[j] *= w.of[j], normal.of[j] *= scale;
        use(k, gradient, normal);
      }
    };
    W product(0);
    for_each_pack([&](Index, const Pack<W, N>& gradient, const Pack<W, N>& normal) {
#pragma unroll
      for (int j = 0; j < N; ++j) product += gradient.of[j] * normal.of[j];
    });
    const W mean_product = teams.sum(product) / static_cast<W>(s.n);
    for_each_pack([&](Index k, Pack<W, N> gradient, const Pack<W, N>& normal) {
#pragma unroll
      for (int j = 0; j < N; ++j) gradient.of[j] = scale * (gradient.of[j] - normal.of[j] * mean_product);
      put_pack(dx, start + k, gradient);
    });
    for (Index k = item.is_head ? end : first; k < end; k += teams.lanes * N)
      put_pack(dx, start + k, widened(load_pack<N>(dy + start + k)));
  });
}

/// One block for a strip of columns and a part of the rows: partials[z][part] gets the sums of dy * xhat over
/// the heads of queries (z = 0) or keys (z = 1). Threads across take a pack of columns each, those down every
/// blockDim.y-th head.
template <int N, class T>
__global__ void head_parts_kernel(HeadNorms s, const T* x, const Wide<T>* rstd, const T* dy,
                                  Wide<T>* partials) {
  using W = Wide<T>;
  __shared__ Pack<W, N> of_threads[kBlock];
  const int lanes = static_cast<int>(blockDim.x), teams = static_cast<int>(blockDim.y);
  const int lane = static_cast<int>(threadIdx.x), team = static_cast<int>(threadIdx.y);
  const Index column = (Index{blockIdx.x} * lanes + lane) * N, part = blockIdx.y, parts = gridDim.y;
  const bool of_keys = blockIdx.z == 1;
  const Index before = of_keys ? s.queries : 0, heads = of_keys ? s.keys : s.queries;
  const Index end = column < s.n && heads > 0 ? s.rows * (part + 1) / parts : 0;
  const Index whole = heads > 0 ? teams / heads : 0, rest = heads > 0 ? teams % heads : 0;
  Index row = s.rows * part / parts + (heads > 0 ? team / heads : 0), head = heads > 0 ? team % heads : 0;
  Pack<W, N> products{};
  while (row < end) {
    const Index at = row * s.width + (before + head) * s.n + column;
    const W scale = rstd[row * s.heads() + before + head];
    const Pack<W, N> d = widened(load_pack<N>(dy + at)), own = widened(load_pack<N>(x + at));
#pragma unroll
    for (int j = 0; j < N; ++j) products.of[j] += d.of[j] * (own.of[j] * scale);
    row += whole, head += rest;
    if (head >= heads) head -= heads, ++row;
  }
  of_threads[team * lanes + lane] = products;
  __syncthreads();
  if (team > 0 || column >= s.n) return;
  for (int other = 1; other < teams; ++other) add_pack(products, of_threads[other * lanes + lane]);
  store_pack(partials + ((of_keys ? parts : 0) + part) * s.n + column, products);
}

}  // namespace

template <class T>
void head_norms_forward(Cuda on, const HeadNorms& s, const T* x, const T* query_weight, const T* key_weight,
                        T* y, Wide<T>* rstd) {
  with_packs<kPackSize<T>>(heads_are_packed<T>(s, x, query_weight, key_weight, y), [&](auto pack) {
    const HeadTeams teams = teams_of(s, pack);
    launch(on, "head_norms_forward", head_norms_forward_kernel<pack, T>, teams.blocks(), teams, x,
           query_weight, key_weight, y, rstd);
  });
}

template <class T>
void head_norms_backward(Cuda on, const HeadNorms& s, const T* x, const T* query_weight, const T* key_weight,
                         const Wide<T>* rstd, const T* dy, Wide<T>* partials, Write<T> dx,
                         Write<Wide<T>> dquery_weight, Write<Wide<T>> dkey_weight) {
  using W = Wide<T>;
  const bool packed =
      heads_are_packed<T>(s, x, query_weight, key_weight, dy, partials, static_cast<const T*>(dx.to));
  with_packs<kPackSize<T>>(packed, [&](auto pack) {
    const HeadTeams teams = teams_of(s, pack);
    if (dx)
      launch(on, "head_norms_backward", head_norms_backward_kernel<pack, T>, teams.blocks(), teams, x,
             query_weight, key_weight, rstd, dy, dx);
    if (partials == nullptr) return;
    const Index parts = normalize_parts(on, s.rows, s.width), strips = tiles_of(s.n, teams.lanes * pack);
    const auto lanes = static_cast<unsigned>(teams.lanes);
    launch(on, "head_norms_backward", head_parts_kernel<pack, T>,
           {strips, parts, 2, dim3(lanes, kBlock / lanes)}, s, x, rstd, dy, partials);
    if (dquery_weight) reduce_sum(on, 1, parts, s.n, static_cast<const W*>(partials), dquery_weight);
    if (dkey_weight)
      reduce_sum(on, 1, parts, s.n, static_cast<const W*>(partials) + parts * s.n, dkey_weight);
  });
}

TAPEFORMER_CUDA_KERNEL(head_norms_forward);
TAPEFORMER_CUDA_KERNEL(head_norms_backward);

}  // namespace tapeformer::kernels
