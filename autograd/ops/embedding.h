#pragma once

#include <tapeformer/autograd/tensor.h>

#include <cstdint>
#include <vector>

namespace tapeformer {

/// Looks up rows of a table.
/// Math:    y[i] = table[ids[i]]
/// Grad:    dtable[v] = sum of dy[i] over the i with ids[i] = v
/// Shapes:  table [V, C], ids i32 [...] -> y [..., C]
/// Saves:   ids
/// Throws:  ShapeError if the table is not a matrix or an id is outside [0, V), DTypeError unless ids are i32
Tensor embedding(const Tensor& table, const Tensor& ids);

/// A copy of rows of x, whose row i is row rows[i] of x. Not recorded.
/// Shapes:  x [N, ...] -> [number of rows, ...]
/// Throws:  ShapeError naming a row that does not exist
Tensor picked_rows(const Tensor& x, const std::vector<std::int32_t>& rows);

/// Replaces x by picked_rows(x, rows). On a GPU x keeps its address if the number of rows stays the same,
/// because graphs of steps refer to it.
void pick_rows(Tensor& x, const std::vector<std::int32_t>& rows);

}  // namespace tapeformer
