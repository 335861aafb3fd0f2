#pragma once

#include <tapeformer/autograd/tensor.h>

#include <cstdint>
#include <vector>

namespace tapeformer {

/// Shapes:  x [N, ...] -> [number of rows, ...], row i being row rows[i] of x; copied, not recorded
/// Throws:  ShapeError naming a row that is not there
Tensor picked_rows(const Tensor& x, const std::vector<std::int32_t>& rows);

}  // namespace tapeformer
