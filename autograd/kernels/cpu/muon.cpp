#include <tapeformer/autograd/kernels/cpu/block_product.h>
#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/sum_of_squares.h>
#include <tapeformer/autograd/kernels/matmul.h>
#include <tapeformer/autograd/kernels/muon.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tapeformer::kernels {
namespace {

constexpr Index kInCache = 256;  // the side of matrices that stay in a core's cache with all of their powers

/// c [rows, columns] = a b.
template <class T>
void product(Index rows, Index columns, Index depth, LeftOperand<T> a, Block<const T> b, T* c, Index c_row) {
  if (c_row <= leading<T>(kInCache)) return block_product(rows, columns, depth, a, b, c, c_row, false);
  Gemm s;
  s.m = rows, s.n = columns, s.k = depth;
  s.transpose_a = a.row == 1;
  s.lda = s.transpose_a ? a.step : a.row, s.ldb = b.row, s.ldc = c_row;
  s.rounds = false;  // see orthogonalize(): negative eigenvalues of 4e-3 would grow without bound
  gemm(Cpu{}, s, a.data, b.data, Write<T>{c, false});
}

/// c [side, side] = a b, which is symmetric: a little more than half of it is computed.
template <class T>
void symmetric_product(Index side, Index depth, LeftOperand<T> a, Block<const T> b, T* c, Index c_row) {
  // As wide as 12 rows of sums leave registers for, or as library products are fast.
  const Index strip = side <= kInCache ? 2 * kLanes<T> : 128;
  for (Index j = 0; j < side; j += strip) {
    const Index width = std::min(strip, side - j), below = j + width;
    product<T>(side - j, width, depth, {a.data + j * a.row, a.row, a.step}, {b.data + j, b.row},
               c + j * c_row + j, c_row);
    for (Index i = below; i < side; i += 4)
      transpose_block(std::min<Index>(4, side - i), width, c + i * c_row + j, c_row, c + j * c_row + i,
                      c_row);
  }
}

/// The matrix x of `s`, with as many rows as columns or more, or its transpose: y [longer, side] with rows of
/// y_row elements. `strip` holds kLanes rows.
template <class T>
void read_tall(const NewtonSchulz& s, const T* x, T scale, T* y, Index y_row, T* strip) {
  if (s.rows > s.columns) return pack_rows<T>(s.rows, s.columns, x, s.columns, nullptr, scale, y, y_row);
  const Index width = padded<T>(s.columns);
  for (Index i = 0; i < s.rows; i += kLanes<T>) {
    const Index count = std::min(kLanes<T>, s.rows - i);
    pack_rows<T>(count, s.columns, x + i * s.columns, s.columns, nullptr, scale, strip, width);
    transpose_block(count, s.columns, strip, width, y + i, y_row);
  }
}
template <class T>
void write_tall(const NewtonSchulz& s, const T* y, Index y_row, T* x, T* strip) {
  if (s.rows > s.columns) {
    for (Index i = 0; i < s.rows; ++i) std::copy_n(y + i * y_row, s.columns, x + i * s.columns);
    return;
  }
  const Index width = padded<T>(s.columns);
  for (Index i = 0; i < s.rows; i += kLanes<T>) {
    const Index count = std::min(kLanes<T>, s.rows - i);
    transpose_block(s.columns, count, y + i, y_row, strip, width);
    for (Index row = 0; row < count; ++row)
      std::copy_n(strip + row * width, s.columns, x + (i + row) * s.columns);
  }
}

/// p = a I + b x + c p
template <class T>
void polynomial(Index side, const T* x, T* p, Index row) {
  const T b = static_cast<T>(kQuintic[1]), c = static_cast<T>(kQuintic[2]);
  for (Index i = 0; i < side; ++i) {
#pragma omp simd
    for (Index j = i * row; j < i * row + side; ++j) p[j] = b * x[j] + c * p[j];
    p[i * row + i] += static_cast<T>(kQuintic[0]);
  }
}

/// Runs on the calling thread alone within a team; otherwise all threads share products of large matrices.
/// With P_i = a I + b A_i + c A_i^2, where A_0 = y^T y, a matrix that is much longer than wide is multiplied
/// once in five steps, by P_0 P_1 ...: A_{i+1} = y_{i+1}^T y_{i+1} = P_i A_i P_i, and all of these are
/// symmetric. An eigenvalue of A that rounding made negative grows a^2-fold with each step, from 1e-7 to 2e-3
/// in f32 and no further, as the next five steps begin with y^T y. P_0 P_1 ... is computed whole: where y has
/// no singular values it grows to a^5 = 500, and if half of it were copied over the other half, roundings
/// would reach y as much enlarged, up to 2e-2 of it in f32.
template <class T>
void orthogonalize(const NewtonSchulz& s, T* x) {
  struct Buffers {};
  const Index side = std::min(s.rows, s.columns), longer = std::max(s.rows, s.columns),
              row = leading<T>(side), square = padded<T>(side) * row, tall = padded<T>(longer) * row;
  T* gram = thread_memory<Buffers, T>(4 * square + 2 * tall + kLanes<T> * padded<T>(longer));
  T *p = gram + square, *all = p + square, *other = all + square, *y = other + square, *next = y + tall,
    *strip = next + tall;
  const double norm = std::max(std::sqrt(sum_of_squares(s.rows * s.columns, x)), s.epsilon);
  read_tall(s, x, static_cast<T>(1 / norm), y, row, strip);
  const auto times = [=](const T* a, const T* b, T* c) {
    symmetric_product<T>(side, side, {a, row, 1}, {b, row}, c, row);
  };
  const auto multiply_y = [&](const T* by) {
    product<T>(longer, side, side, {y, row, 1}, {by, row}, next, row);
    std::swap(y, next);
  };
  const int round = 2 * longer > 3 * side ? 5 : 1;
  for (int step = 0; step < s.steps; ++step) {
    const bool begins = step % round == 0, ends = step % round == round - 1 || step == s.steps - 1;
    if (begins) symmetric_product<T>(side, longer, {y, 1, row}, {y, row}, gram, row);
    times(gram, gram, p);
    polynomial(side, gram, p, row);
    if (!ends) {
      times(gram, p, other);
      times(p, other, gram);
    }
    if (begins) {
      std::swap(all, p);
    } else {
      product<T>(side, side, side, {all, row, 1}, {p, row}, other, row);
      std::swap(all, other);
    }
    if (ends) multiply_y(all);
  }
  write_tall(s, y, row, x, strip);
}

}  // namespace

template <class T>
void muon_momentum(Cpu, const StepTensors& all, double momentum, bool nesterov, const double* factor) {
  if (std::isnan(*factor)) return;
  const T scale = static_cast<T>(*factor), keep = static_cast<T>(momentum);
  for (Index t = 0; t < all.tensor_count; ++t) {
    const StepTensor& x = all.tensors[t];
    const T* gradient = static_cast<const T*>(x.gradient);
    T *moment = static_cast<T*>(x.state1), *update = static_cast<T*>(x.state2);
    parallel_ranges(x.count, 1, [=](Index from, Index to) {
#pragma omp simd
      for (Index i = from; i < to; ++i) {
        const T g = gradient[i] * scale, m = g + keep * (moment[i] - g);
        moment[i] = m;
        update[i] = nesterov ? g + keep * (m - g) : m;
      }
    });
  }
}

/// Matrices run one per thread if there are enough of them, or each is small.
template <class T>
void newton_schulz(Cpu, const NewtonSchulz& s, T* x) {
  const Index elements = s.rows * s.columns;
  if (elements == 0) return;
  const auto run = [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) orthogonalize(s, x + i * elements);
  };
  if (s.count >= omp_get_max_threads() || std::min(s.rows, s.columns) <= kInCache) {
    parallel_ranges(s.count, kParallelWork, run);
  } else {
    run(0, s.count);
  }
}

template <class T>
void muon_step(Cpu, const StepTensors& all, const MuonStep* steps, Index, const double* factor) {
  if (std::isnan(*factor)) return;
  for (Index t = 0; t < all.tensor_count; ++t) {
    const StepTensor& x = all.tensors[t];
    const MuonStep& step = steps[x.setting];
    const T rate = static_cast<T>(step.learning_rate), keep = static_cast<T>(1 - step.weight_decay);
    const T* update = static_cast<const T*>(x.state2);
    T* value = static_cast<T*>(x.value);
    BFloat16* shadow = x.shadow;
    parallel_ranges(x.count, 1, [=](Index from, Index to) {
#pragma omp simd
      for (Index i = from; i < to; ++i) value[i] = value[i] * keep - rate * update[i];
      for (Index i = from; shadow != nullptr && i < to; ++i) shadow[i] = BFloat16(value[i]);
    });
  }
}

TAPEFORMER_CPU_KERNEL(muon_momentum);
TAPEFORMER_CPU_KERNEL(newton_schulz);
TAPEFORMER_CPU_KERNEL(muon_step);

}  // namespace tapeformer::kernels
