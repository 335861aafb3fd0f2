#pragma once

#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

/// Looks up rows of a table.
/// Math:    y[i] = table[ids[i]]
/// Grad:    dtable[v] = sum of dy[i] over the i with ids[i] = v
/// Shapes:  table [V, C], ids i32 [...] -> y [..., C]
/// Saves:   ids
/// Throws:  ShapeError if the table is not a matrix or an id is outside [0, V), DTypeError unless ids are i32
Tensor embedding(const Tensor& table, const Tensor& ids);

}  // namespace tapeformer
