#pragma once

#include <tapeformer/autograd/kernels/matmul.h>

namespace tapeformer::kernels {

/// True for a single product that may round, has no scale, and is large enough for that to save time.
bool is_bf16_product(const Gemm& shape);

/// c = a b with factors rounded to bf16 and sums in f32. Processors without instructions for bf16 compute the
/// same in f32, more slowly than without rounding.
void bf16_gemm(const Gemm& shape, const float* a, const float* b, Write<float> c);

}  // namespace tapeformer::kernels
