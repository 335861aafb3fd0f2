#pragma once

#include <tapeformer/autograd/shape.h>

namespace tapeformer::kernels {

/// The sum of squares of x[count], in double, on the calling thread. It is a function because g++ 12 does not
/// vectorise a reduction inside a lambda.
template <class T>
double sum_of_squares(Index count, const T* x) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace tapeformer::kernels
