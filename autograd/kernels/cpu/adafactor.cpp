#include <tapeformer/autograd/kernels/adafactor.h>
#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/sum_of_squares.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tapeformer::kernels {
namespace {

/// The elements of a parameter, and the factor of its gradient.
template <class T>
struct Elements {
  const AdafactorTensor& x;
  const AdafactorStep& step;
  T factor;
  const T* gradient = static_cast<const T*>(x.gradient);
  T* value = static_cast<T*>(x.value);

  T weight() const { return static_cast<T>(step.weight); }
  double square(double number) const { return number * number; }
  /// The mean of `count` numbers whose squares have this sum, as the gradients' squares.
  T mean(double squares, Index count) const {
    return static_cast<T>(squares * square(static_cast<double>(factor)) / static_cast<double>(count));
  }
};

/// A function of its own for the same reason as sum_of_squares().
template <class T>
double squares_of_updates(AdafactorRow<T> row, Index count, const T* gradient, T factor) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < count; ++i) {
    const T u = row.update(gradient[i] * factor, i);
    sum += static_cast<double>(u) * static_cast<double>(u);
  }
  return sum;
}

template <class T>
void update_rows(const Elements<T>& of) {
  T* variance = static_cast<T*>(of.x.row_variance);
  parallel_ranges(of.x.all_rows(), of.x.columns, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) {
      const double squares = sum_of_squares(of.x.columns, of.gradient + i * of.x.columns);
      variance[i] += of.weight() * (of.mean(squares, of.x.columns) - variance[i]);
    }
  });
}

template <class T>
void update_columns(const Elements<T>& of) {
  struct Sums;
  for (Index matrix = 0; matrix < of.x.matrices; ++matrix) {
    T* variance = static_cast<T*>(of.x.column_variance) + matrix * of.x.columns;
    const T* gradient = of.gradient + matrix * of.x.rows * of.x.columns;
    parallel_ranges(of.x.columns, of.x.rows, [&](Index from, Index to) {
      double* sums = thread_memory<Sums, double>(to - from);
      std::fill(sums, sums + (to - from), 0.0);
      for (Index row = 0; row < of.x.rows; ++row) {
        const T* g = gradient + row * of.x.columns + from;
#pragma omp simd
        for (Index i = 0; i < to - from; ++i)
          sums[i] += static_cast<double>(g[i]) * static_cast<double>(g[i]);
      }
      for (Index i = from; i < to; ++i)
        variance[i] += of.weight() * (of.mean(sums[i - from], of.x.rows) - variance[i]);
    });
  }
}

template <class T>
void update_factored(const Elements<T>& of) {
  T* variance = static_cast<T*>(of.x.variance);
  for (Index i = 0; i < of.x.columns; ++i) {
    const T g = of.gradient[i] * of.factor;
    variance[i] += of.weight() * (g * g - variance[i]);
  }
}

/// The mean variance of each matrix' rows; not read for a vector.
template <class T>
const double* means_of_rows(const AdafactorTensor& x) {
  struct Means;
  double* means = thread_memory<Means, double>(x.matrices);
  const T* rows = static_cast<const T*>(x.row_variance);
  for (Index i = 0; x.variance == nullptr && i < x.matrices; ++i, rows += x.rows)
    means[i] = std::accumulate(rows, rows + x.rows, 0.0) / static_cast<double>(x.rows);
  return means;
}

/// Calls body(row number, row) for all rows, on all threads.
template <class T, class Body>
void for_each_row(const Elements<T>& of, const double* means, const Body& body) {
  parallel_ranges(of.x.all_rows(), of.x.columns, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i)
      body(i, adafactor_row<T>(of.x, of.step.epsilon, i, means[i / of.x.rows]));
  });
}

}  // namespace

template <class T>
void adafactor_step(Cpu, const AdafactorTensor& x, const AdafactorStep& step, const double* factor) {
  const Index rows = x.all_rows(), columns = x.columns;
  if (std::isnan(*factor) || rows * columns == 0) return;
  const Elements<T> of{x, step, static_cast<T>(*factor)};
  if (x.variance != nullptr) {
    update_factored(of);
  } else {
    update_rows(of);
    update_columns(of);
  }
  const double* means = means_of_rows<T>(x);
  struct Squares;
  double *of_values = thread_memory<Squares, double>(2 * rows), *of_updates = of_values + rows;
  for_each_row(of, means, [&](Index i, AdafactorRow<T> row) {
    of_values[i] = sum_of_squares(columns, of.value + i * columns);
    of_updates[i] = squares_of_updates(row, columns, of.gradient + i * columns, of.factor);
  });
  const T size =
              static_cast<T>(step.size(std::accumulate(of_values, of_values + rows, 0.0),
                                       std::accumulate(of_updates, of_updates + rows, 0.0), rows * columns)),
          keep = static_cast<T>(1 - step.learning_rate * step.weight_decay);
  for_each_row(of, means, [&](Index i, AdafactorRow<T> row) {
    const T *gradient = of.gradient + i * columns, scale = of.factor;
    T* value = of.value + i * columns;
#pragma omp simd
    for (Index c = 0; c < columns; ++c)
      value[c] = value[c] * keep - size * row.update(gradient[c] * scale, c);
    for (Index c = 0; x.shadow != nullptr && c < columns; ++c) x.shadow[i * columns + c] = BFloat16(value[c]);
  });
}

#define INSTANTIATE(T) \
  template void adafactor_step<T>(Cpu, const AdafactorTensor&, const AdafactorStep&, const double*);
TAPEFORMER_CPU_TYPES(INSTANTIATE)

}  // namespace tapeformer::kernels
