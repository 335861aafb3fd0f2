#pragma once

#include <tapeformer/autograd/tensor.h>

#include <cstdint>
#include <vector>

namespace tapeformer {

/// A copy of rows of x: row i is row rows[i] of x. Not recorded.
/// Shapes:  x [N, ...] -> [number of rows, ...]
/// Throws:  ShapeError naming a row that does not exist
Tensor picked_rows(const Tensor& x, const std::vector<std::int32_t>& rows);

/// Replaces x by these rows of it. On a GPU x keeps its address if the number of rows stays the same,
/// because graphs of steps refer to it.
void pick_rows(Tensor& x, const std::vector<std::int32_t>& rows);

}  // namespace tapeformer
