#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cmath>

namespace tapeformer::kernels {

/// A parameter for a step of Adafactor, all of one type, f32 or f64: [matrices, rows, columns] with variances
/// of rows [matrices, rows] and of columns [matrices, columns], or a vector, which is one row, with a
/// variance of each element.
struct AdafactorTensor {
  const void* gradient = nullptr;
  void *value = nullptr, *row_variance = nullptr, *column_variance = nullptr;
  void* variance = nullptr;    ///< of a vector's elements; nullptr for matrices
  BFloat16* shadow = nullptr;  ///< the value in bf16, written in the same pass
  Index matrices = 1, rows = 1, columns = 0;

  TAPEFORMER_HOST_DEVICE Index all_rows() const { return matrices * rows; }
};

struct AdafactorStep {
  double learning_rate, weight_decay;
  double relative_rate;  ///< times the root of the value's mean square, or least_scale: the step's size
  double weight;         ///< of the new squares in the variances
  double epsilon, least_scale, update_clip;

  /// The step's size over the norm that a clipped update is divided by.
  /// Math:  relative_rate max(least_scale, rms(x)) / max(1, rms(u) / update_clip)
  TAPEFORMER_HOST_DEVICE double size(double squares_of_values, double squares_of_updates, Index count) const {
    const double rms = std::sqrt(squares_of_values / static_cast<double>(count)),
                 rms_of_updates = std::sqrt(squares_of_updates / static_cast<double>(count)) / update_clip;
    return relative_rate * (rms > least_scale ? rms : least_scale) /
           (rms_of_updates > 1 ? rms_of_updates : 1);
  }
};

/// The update u of elements of one row before it is clipped: g / sqrt(max(variance, epsilon^2)).
template <class T>
struct AdafactorRow {
  const T* variances;  ///< by column
  T scale;             ///< their factor in this row
  T least;             ///< epsilon^2

  TAPEFORMER_HOST_DEVICE T update(T g, Index column) const {
    const T variance = scale * variances[column];
    return g / std::sqrt(variance > least ? variance : least);
  }
};
/// Row `i` of all, whose matrix has `mean`, the mean of its rows' variances.
template <class T>
TAPEFORMER_HOST_DEVICE AdafactorRow<T> adafactor_row(const AdafactorTensor& x, double epsilon, Index i,
                                                     double mean) {
  const T least = static_cast<T>(epsilon * epsilon);
  if (x.variance != nullptr) return {static_cast<const T*>(x.variance), 1, least};
  const T scale = static_cast<T>(static_cast<double>(static_cast<const T*>(x.row_variance)[i]) /
                                 (mean > epsilon ? mean : epsilon));
  return {static_cast<const T*>(x.column_variance) + i / x.rows * x.columns, scale, least};
}

/// One step of one parameter; changes nothing if *factor is NaN.
/// Math:    g = factor gradient;  r = r + weight (mean over columns of g^2 - r);  c likewise over rows
///          v = r c / max(mean of r, epsilon), of a vector v + weight (g^2 - v)
///          u = g / sqrt(max(v, epsilon^2));  size from x and u;  x = x (1 - lr decay) - size u
template <class T>
void adafactor_step(Cpu, const AdafactorTensor& x, const AdafactorStep& step, const double* factor);
template <class T>
void adafactor_step(Cuda, const AdafactorTensor& x, const AdafactorStep& step, const double* factor);

}  // namespace tapeformer::kernels
