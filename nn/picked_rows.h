#pragma once

#include <tapeformer/autograd/tensor.h>

#include <cstdint>
#include <vector>

namespace tapeformer {

/// Shapes:  x [N, ...] -> [number of rows, ...], row i being row rows[i] of x; copied, not recorded
/// Throws:  ShapeError naming a row that is not there
Tensor picked_rows(const Tensor& x, const std::vector<std::int32_t>& rows);

/// x becomes these rows of its own. On a GPU it stays where it is if their number does: graphs of steps know
/// that place.
void pick_rows(Tensor& x, const std::vector<std::int32_t>& rows);

}  // namespace tapeformer
