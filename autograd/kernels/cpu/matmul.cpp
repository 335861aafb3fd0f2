#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/cpu/bf16_product.h>
#include <tapeformer/autograd/kernels/cpu/block_product.h>
#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/simd.h>
#include <tapeformer/autograd/kernels/matmul.h>
#include <tapeformer/autograd/kernels/reduce.h>

// Must come first: otherwise cxxblas uses its own loops instead of BLAS.
#include <xtensor-blas/xblas_config.hpp>

#include <xflens/cxxblas/cxxblas.cxx>

#if defined(TAPEFORMER_ONEDNN)
#include <dnnl.h>
#endif

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>

extern "C" int openblas_get_parallel(void);

namespace tapeformer::kernels {
namespace {

#if defined(TAPEFORMER_ONEDNN)
template <class T>
constexpr bool is_on_blas = std::is_same_v<T, double>;
#else
template <class T>
constexpr bool is_on_blas = true;
#endif

/// BLAS has sizes of 32 bits.
void check_fits_blas(const Gemm& s) {
  const Index largest = std::max({s.m, s.n, s.k, s.lda, s.ldb, s.ldc});
  if (largest <= std::numeric_limits<int>::max()) return;
  throw ShapeError(
      "[matmul] sizes of a product on BLAS, which computes all f64 products on the CPU, must fit in 32 bits; "
      "got " +
      std::to_string(largest) + "; try f32, or parts of the tensors");
}

/// Libraries divide a product among omp_get_max_threads() threads. If they get fewer, as OMP_THREAD_LIMIT and
/// OMP_DYNAMIC may have it, oneDNN leaves parts out and OpenBLAS waits forever: products then run on one.
struct OneIfFewerMayCome {
  OneIfFewerMayCome() {
    if (omp_get_dynamic() != 0 || omp_get_max_threads() > omp_get_thread_limit()) one.emplace();
  }
  std::optional<OneThread> one;
};

/// One product on BLAS through xtensor-blas. Inside a parallel region it stays on the calling thread.
template <class T>
void blas_gemm(const Gemm& s, const T* a, const T* b, T beta, T* c) {
  const auto size = [](Index n) { return static_cast<int>(n); };
  const auto transpose = [](bool yes) { return yes ? cxxblas::Trans : cxxblas::NoTrans; };
  cxxblas::gemm(cxxblas::RowMajor, transpose(s.transpose_a), transpose(s.transpose_b), size(s.m), size(s.n),
                size(s.k), static_cast<T>(s.scale), a, size(s.lda), b, size(s.ldb), beta, c, size(s.ldc));
}

void one_gemm(const Gemm& s, const double* a, const double* b, double beta, double* c) {
  const OneIfFewerMayCome threads;
  blas_gemm(s, a, b, beta, c);
}

void library_gemm(const Gemm& s, const float* a, const float* b, float beta, float* c) {
#if defined(TAPEFORMER_ONEDNN)
  const dnnl_status_t status = dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k,
                                          static_cast<float>(s.scale), a, s.lda, b, s.ldb, beta, c, s.ldc);
  if (status == dnnl_success) return;
#endif
  blas_gemm(s, a, b, beta, c);
}

/// True where oneDNN computes with AVX2. Its sums over lines that are a multiple of 1 KB apart, which share a
/// few sets of the L1 cache, take up to 2.4 times as long.
bool is_on_avx2() {
#if defined(TAPEFORMER_ONEDNN)
  const auto has = [](unsigned isa) { return (dnnl_get_effective_cpu_isa() & isa) == isa; };
  static const bool is = has(dnnl_cpu_isa_avx2) && !has(dnnl_cpu_isa_avx512_core);
  return is;
#else
  return false;
#endif
}

/// The lines of a factor, `stride` apart, copied to another distance in this thread's memory.
template <class Factor>
const float* spread_lines(Index lines, Index width, const float* from, Index& stride) {
  const Index lead = leading<float>(width);
  float* const to = thread_memory<Factor, float>(lines * lead);
  for (Index i = 0; i < lines; ++i) std::copy_n(from + i * stride, width, to + i * lead);
  stride = lead;
  return to;
}

void one_gemm(const Gemm& s, const float* a, const float* b, float beta, float* c) {
  constexpr Index kKilobyte = 256, kLeastUses = 32;  // with fewer uses of a line the copy costs what it gains
  constexpr Index kInCache = Index{1} << 18;         // elements copied at a time
  const OneIfFewerMayCome threads;
  const bool spread_a = s.transpose_a && s.lda % kKilobyte == 0 && s.n >= kLeastUses;
  const bool spread_b = !s.transpose_b && s.ldb % kKilobyte == 0 && s.m >= kLeastUses;
  if (!(spread_a || spread_b) || !is_on_avx2()) return library_gemm(s, a, b, beta, c);
  const Index width = std::max(spread_a ? s.m : 1, spread_b ? s.n : 1);
  const Index depth = std::clamp<Index>(kInCache / width, 128, 512);
  for (Index k = 0; k < s.k; k += depth) {
    Gemm part = s;
    part.k = std::min(depth, s.k - k);
    const float* left = a + k * (s.transpose_a ? s.lda : 1);
    const float* right = b + k * (s.transpose_b ? 1 : s.ldb);
    if (spread_a) left = spread_lines<struct Left>(part.k, s.m, left, part.lda);
    if (spread_b) right = spread_lines<struct Right>(part.k, s.n, right, part.ldb);
    library_gemm(part, left, right, k == 0 ? beta : 1.0F, c);
  }
}

constexpr Index kOwnLines = 64;  // with as many per thread, packing the other factor in each is cheap

/// The product of a few rows with a matrix that is read before a second thread has woken up, as in the steps
/// of a small model that generates. (oneDNN's sums along rows of both then have the same bits.)
bool is_for_one_thread(const Gemm& s) {
  return s.m <= 4 && s.n * s.k < 200000 && !s.transpose_a && s.transpose_b;
}

/// Few rows times a transposed matrix, as in a step of several generated texts, or of a small batch. A
/// library is faster if it reorders a small matrix for more than two vectors of rows.
template <class T>
bool is_few_rows_product(const Gemm& s) {
  constexpr Index kMostDepth = 8192;  // the packed rows stay within a few megabytes
  const Index most = s.n * s.k >= 200000 ? 128 : 2 * kLanes<T>;
  return s.transpose_b && !s.transpose_a && s.m >= 16 && s.m <= most && s.n >= 64 && s.k > 0 &&
         s.k <= kMostDepth;
}

/// c [m, n] = scale a b^T + beta c (beta 0 or 1) through its transpose: few rows are packed as vectors, and
/// the matrix is read once in place, where a library would first reorder it.
template <class T>
void few_rows_product(const Gemm& s, const T* a, const T* b, T beta, T* c) {
  constexpr Index kDepth = 512, kColumns = 48;  // of b at a time: 2 KB of each of its rows; a tile of c
  const Index rows = padded<T>(s.m), lead = leading<T>(s.m), blocks = (s.n + kColumns - 1) / kColumns;
  parallel_ranges(blocks, s.m * s.k * kColumns / 8, [&](Index first, Index last) {
    struct FewRows {};
    T* packed = thread_memory<FewRows, T>(padded<T>(s.k) * (lead + kLanes<T>)+2 * kColumns * lead);
    T *strip = packed + padded<T>(s.k) * lead, *tile = strip + padded<T>(s.k) * kLanes<T>,
      *lines = tile + kColumns * lead;
    for (Index i = 0; i < rows; i += kLanes<T>) {
      const Index count = std::min(kLanes<T>, s.m - i);
      if (count == kLanes<T> && s.k % 4 == 0 && s.scale == 1) {
        transpose_block(kLanes<T>, s.k, a + i * s.lda, s.lda, packed + i, lead);
        continue;
      }
      pack_rows<T>(count, s.k, a + i * s.lda, s.lda, nullptr, static_cast<T>(s.scale), strip, padded<T>(s.k));
      std::fill(strip + count * padded<T>(s.k), strip + kLanes<T> * padded<T>(s.k), T(0));
      transpose_block(kLanes<T>, s.k, strip, padded<T>(s.k), packed + i, lead);
    }
    for (Index j = first * kColumns; j < std::min(s.n, last * kColumns); j += kColumns) {
      const Index columns = std::min(kColumns, s.n - j);
      for (Index k = 0; k < s.k; k += kDepth) {
        block_product<T>(columns, s.m, std::min(kDepth, s.k - k), {b + j * s.ldb + k, s.ldb, 1},
                         {packed + k * lead, lead}, tile, lead, k > 0);
      }
      transpose_block(kColumns, s.m, tile, lead, lines, kColumns);
      for (Index i = 0; i < s.m; ++i) {
        const T* from = lines + i * kColumns;
        T* line = c + i * s.ldc + j;
        if (beta == T(0))
          std::copy_n(from, columns, line);
        else
          for (Index x = 0; x < columns; ++x) line[x] += from[x];
      }
    }
  });
}

/// One product whose longer side is divided among the threads, in whole vectors. A thread's rows are the same
/// as in the operations around, and so in its cache; divided columns keep the parts of a small batch from
/// being narrow.
template <class T>
void divided_gemm(const Gemm& s, const T* a, const T* b, T beta, T* c) {
  constexpr Index kVector = 16;
  const bool by_rows = s.m >= s.n;
  const Index length = by_rows ? s.m : s.n;
  parallel_ranges((length + kVector - 1) / kVector, kVector * std::min(s.m, s.n) * s.k / 8,
                  [&](Index from, Index to) {
                    const Index first = from * kVector, count = std::min(length, to * kVector) - first;
                    Gemm part = s;
                    (by_rows ? part.m : part.n) = count;
                    const Index row = by_rows ? first : 0, column = first - row;
                    one_gemm(part, a + row * (s.transpose_a ? 1 : s.lda),
                             b + column * (s.transpose_b ? s.ldb : 1), beta, c + row * s.ldc + column);
                  });
}

/// The product over an empty k: c = 0, or c unchanged.
template <class T>
void clear(const Gemm& s, T beta, T* c) {
  for (Index row = 0; row < s.m; ++row) {
    for (Index i = 0; i < s.n; ++i) c[row * s.ldc + i] *= beta;
    if (beta == T(0)) std::memset(c + row * s.ldc, 0, static_cast<std::size_t>(s.n) * sizeof(T));
  }
}

}  // namespace

template <class T>
void gemm(Cpu, const Gemm& s, const T* a, const T* b, Write<T> c) {
  const Index count = s.batch.elements();
  if (count == 0 || s.m == 0 || s.n == 0) return;
  if (is_on_blas<T>) check_fits_blas(s);
  if constexpr (std::is_same_v<T, float>) {
    if (matmul_precision() == MatmulPrecision::bf16 && is_bf16_product(s)) return bf16_gemm(s, a, b, c);
  }
  const T beta = c.add ? T(1) : T(0);
  const auto products = [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) {
      const Broadcast::Offsets at = s.batch.offsets(i, s.batch.axes);
      if (s.k == 0) {
        clear(s, beta, c.to + at.c);
      } else {
        one_gemm(s, a + at.a, b + at.b, beta, c.to + at.c);
      }
    }
  };
  // Many small products run one per thread. A single one is cut into rows or columns for each thread if
  // there are enough. Otherwise the library divides the work.
  if (count >= 2 * omp_get_max_threads()) {
    parallel_ranges(count, s.m * s.n * s.k / 8, products);
  } else if (count == 1 && is_few_rows_product<T>(s)) {
    few_rows_product(s, a, b, beta, c.to);
  } else if (count == 1 && s.k > 0 && !is_for_one_thread(s) &&
             std::max(s.m, s.n) >= kOwnLines * omp_get_max_threads()) {
    divided_gemm(s, a, b, beta, c.to);
  } else {
    std::optional<OneThread> one;
    if (is_for_one_thread(s)) one.emplace();
    products(0, count);
  }
}

template <class T>
void linear_forward(Cpu on, const Gemm& s, const T* x, const T* weight, const T* bias, std::optional<Unary> f,
                    T* saved, T* y) {
  T* z = saved != nullptr ? saved : y;
  gemm(on, s, x, weight, Write<T>{z, false});
  if (bias == nullptr && !f) return;
  parallel_ranges(s.m, s.n * (f ? 4 : 1), [&](Index from, Index to) {
    for (Index row = from; row < to; ++row) {
      T* line = z + row * s.ldc;
      if (bias != nullptr) {
#pragma omp simd
        for (Index i = 0; i < s.n; ++i) line[i] += bias[i];
      }
      if (f && saved != nullptr) unary_forward_with_derivative(on, *f, s.n, line, y + row * s.ldc);
      if (f && saved == nullptr) unary_forward(on, *f, s.n, line, line);
    }
  });
}

template <class T>
void linear_activation_backward(Cpu on, Unary f, Index rows, Index n, const T* saved, const T* dy, T* dz,
                                Write<Wide<T>> dbias) {
  if (saves_output(f)) {
    unary_backward(on, f, rows * n, saved, dy, Write<T>{dz, false});
  } else {
    binary(on, Binary::multiply, alike(rows * n), saved, dy, dz);
  }
  if (dbias) sum_rows(on, rows, n, n, dz, dbias);
}

const char* gemm_warning() {
  if (openblas_get_parallel() == 1) {
    return "OpenBLAS is the pthread build, whose threads compete with OpenMP's for the cores; install "
           "libopenblas-openmp-dev";
  }
#if defined(TAPEFORMER_ONEDNN)
  return "";
#else
  return "built without oneDNN, so f32 products run on OpenBLAS, which may be several times slower; install "
         "libdnnl-dev and build again";
#endif
}

template void gemm(Cpu, const Gemm&, const float*, const float*, Write<float>);
template void gemm(Cpu, const Gemm&, const double*, const double*, Write<double>);
TAPEFORMER_CPU_KERNEL(linear_forward);
TAPEFORMER_CPU_KERNEL(linear_activation_backward);

}  // namespace tapeformer::kernels
