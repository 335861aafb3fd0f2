#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/simd.h>
#include <tapeformer/autograd/kernels/cpu/sum_by_halves.h>
#include <tapeformer/autograd/kernels/dropout.h>
#include <tapeformer/autograd/kernels/normalization.h>

#include <algorithm>
#include <cmath>

namespace tapeformer::kernels {
namespace {

/// dx of one row: rstd * (g - mean(g) - xhat * mean(g * xhat)), g = dy * weight; RMS norms leave out mean(g).
template <class T>
void row_gradient(Index n, bool centred, T mean, T rstd, const T* x, const T* weight, const T* dy,
                  Write<T> dx) {
  using V = Lanes<T>;
  const V means(mean), scale(rstd);
  const auto run = [&](const auto& gradient, const auto*... w) {
    const T sum = centred ? sum_simd<T>(n, gradient, dy, w...) : T(0);
    const T product = sum_simd<T>(
        n, [&](const V& v, const auto&... d) { return (v - means) * scale * gradient(d...); }, x, dy, w...);
    const V mean_gradient(sum / static_cast<T>(n)), mean_product(product / static_cast<T>(n));
    write_simd(
        0, n, dx,
        [&](const V& v, const auto&... d) {
          return scale * (gradient(d...) - mean_gradient - (v - means) * scale * mean_product);
        },
        x, dy, w...);
  };
  if (weight != nullptr) {
    run([](const V& d, const V& w) { return d * w; }, weight);
  } else {
    run([](const V& d) { return d; });
  }
}

/// Adds up the parts' sums of n columns from `offset` on.
template <class T>
void gather_parts(Index parts, Index n, Index width, const T* partials, Index offset, Write<T> to) {
  for (Index i = 0; to && i < n; ++i) {
    T sum = T(0);
    for (Index part = 0; part < parts; ++part) sum += partials[part * width + offset + i];
    to.put(i, sum);
  }
}

}  // namespace

template <class T>
void normalize_forward(Cpu, Index rows, Index n, bool centred, double epsilon, const T* x,
                       const Branch<T>& branch, const T* weight, const T* bias, T* y, Wide<T>* mean,
                       Wide<T>* rstd) {
  using V = Lanes<T>;
  const auto count = static_cast<T>(n);
  const T* added = branch.from;
  if (branch.mask != nullptr) {
    dropout_apply(Cpu{}, rows * n, branch.mask, branch.scale, added, Write<T>{branch.sum, false});
    added = branch.sum;
  }
  parallel_ranges(rows, 4 * n, [&](Index from, Index to) {
    for (Index row = from; row < to; ++row) {
      const T* line = x + row * n;
      T* out = y + row * n;
      if (added != nullptr) {
        T* sum = branch.sum + row * n;
        map_simd(
            0, n, sum, [](const V& a, const V& b) { return a + b; }, line, added + row * n);
        line = sum;
      }
      const T centre = centred ? total_simd(n, line) / count : T(0);
      const V centres(centre);
      const T squares = sum_simd<T>(
          n, [&](const V& v) { return (v - centres) * (v - centres); }, line);
      const T scale = T(1) / std::sqrt(squares / count + static_cast<T>(epsilon));
      if (mean != nullptr) mean[row] = centre;
      rstd[row] = scale;
      if (weight != nullptr && bias != nullptr) {
#pragma omp simd
        for (Index i = 0; i < n; ++i) out[i] = (line[i] - centre) * scale * weight[i] + bias[i];
      } else {
        for (Index i = 0; i < n; ++i) {
          const T w = weight != nullptr ? weight[i] : T(1), b = bias != nullptr ? bias[i] : T(0);
          out[i] = (line[i] - centre) * scale * w + b;
        }
      }
    }
  });
}

Index normalize_parts(Cpu, Index rows, Index n) {
  if (rows * n * 4 < kParallelWork || omp_in_parallel()) return 1;
  return std::min<Index>(rows, omp_get_max_threads());
}

template <class T>
void normalize_backward(Cpu, Index rows, Index n, bool centred, const T* x, const T* weight,
                        const Wide<T>* mean, const Wide<T>* rstd, const T* dy, Wide<T>* partials, Write<T> dx,
                        const BranchGradient<T>& branch, Write<Wide<T>> dweight, Write<Wide<T>> dbias) {
  const Index parts = normalize_parts(Cpu{}, rows, n);
  const auto run_row = [&](Index row, T* sums) {  // dweight, dbias
    const T centre = mean == nullptr ? T(0) : mean[row], scale = rstd[row];
    const T *line = x + row * n, *d = dy + row * n;
    if (dx) row_gradient(n, centred, centre, scale, line, weight, d, Write<T>{dx.to + row * n, dx.add});
    if (sums == nullptr) return;
#pragma omp simd
    for (Index i = 0; i < n; ++i) {
      sums[i] += d[i] * (line[i] - centre) * scale;
      sums[n + i] += d[i];
    }
  };
  const auto run_rows = [&](Index from, Index to, T* sums) {
    if (sums != nullptr) std::fill_n(sums, 2 * n, T(0));
    for (Index row = from; row < to; ++row) run_row(row, sums);
  };
  sum_parts(rows, parts, rows * n * 4 / parts, 2 * n, run_rows, partials);
  if (branch.to != nullptr)
    dropout_apply(Cpu{}, rows * n, branch.mask, branch.scale, dx.to, Write<T>{branch.to, false});
  gather_parts(parts, n, 2 * n, partials, 0, dweight);
  gather_parts(parts, n, 2 * n, partials, n, dbias);
}

template <class T>
void head_norms_forward(Cpu, const HeadNorms& s, const T* x, const T* query_weight, const T* key_weight, T* y,
                        Wide<T>* rstd) {
  using V = Lanes<T>;
  const auto count = static_cast<T>(s.n), epsilon = static_cast<T>(s.epsilon);
  parallel_ranges(s.rows, 2 * s.width, [&](Index from, Index to) {
    for (Index row = from; row < to; ++row) {
      const T* line = x + row * s.width;
      T* out = y + row * s.width;
      for (Index head = 0; head < s.heads(); ++head) {
        const T* own = line + head * s.n;
        const T scale = T(1) / std::sqrt(dot_simd(s.n, own, own) / count + epsilon);
        rstd[row * s.heads() + head] = scale;
        const V scales(scale);
        map_simd(
            0, s.n, out + head * s.n, [&](const V& v, const V& w) { return v * scales * w; }, own,
            head < s.queries ? query_weight : key_weight);
      }
      std::copy(line + s.heads() * s.n, line + s.width, out + s.heads() * s.n);
    }
  });
}

template <class T>
void head_norms_backward(Cpu, const HeadNorms& s, const T* x, const T* query_weight, const T* key_weight,
                         const Wide<T>* rstd, const T* dy, Wide<T>* partials, Write<T> dx,
                         Write<Wide<T>> dquery_weight, Write<Wide<T>> dkey_weight) {
  const Index parts = normalize_parts(Cpu{}, s.rows, s.width), after = s.heads() * s.n;
  const auto run_rows = [&](Index from, Index to, T* sums) {  // dquery_weight, dkey_weight
    if (sums != nullptr) std::fill_n(sums, 2 * s.n, T(0));
    for (Index row = from; row < to; ++row) {
      const Index start = row * s.width;
      for (Index head = 0; head < s.heads(); ++head) {
        const bool is_query = head < s.queries;
        const Index at = start + head * s.n;
        const T scale = rstd[row * s.heads() + head];
        const T *own = x + at, *d = dy + at;
        if (dx)
          row_gradient(s.n, false, T(0), scale, own, is_query ? query_weight : key_weight, d,
                       Write<T>{dx.to + at, dx.add});
        if (sums == nullptr) continue;
        T* const sum = sums + (is_query ? 0 : s.n);
#pragma omp simd
        for (Index i = 0; i < s.n; ++i) sum[i] += d[i] * own[i] * scale;
      }
      const Index rest = start + after;
      if (dx) write_scaled(s.width - after, T(1), dy + rest, Write<T>{dx.to + rest, dx.add});
    }
  };
  sum_parts(s.rows, parts, s.rows * s.width * 4 / parts, 2 * s.n, run_rows, partials);
  gather_parts(parts, s.n, 2 * s.n, partials, 0, dquery_weight);
  gather_parts(parts, s.n, 2 * s.n, partials, s.n, dkey_weight);
}

TAPEFORMER_CPU_KERNEL(normalize_forward);
TAPEFORMER_CPU_KERNEL(normalize_backward);
TAPEFORMER_CPU_KERNEL(head_norms_forward);
TAPEFORMER_CPU_KERNEL(head_norms_backward);

}  // namespace tapeformer::kernels
