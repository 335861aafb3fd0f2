#pragma once

#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/ops/op_case.h>

#include <utility>

namespace tapeformer {

/// `x` with the matrices in its last two axes, however the factor stores them.
inline Tensor plain(const Factor& factor) {
  Tensor x = factor.x;
  if (factor.by_head) {
    Axes order;
    for (int axis = 0; axis < x.rank(); ++axis) order.push_back(axis);
    std::swap(order[order.size() - 2], order[order.size() - 3]);
    x = permute(x, order);
  }
  return factor.transposed ? transpose(x) : x;
}

/// Plain double loops.
inline Tensor oracle(const Factor& left, const Factor& right, double scale = 1, bool output_by_head = false) {
  const Tensor a = plain(left), b = plain(right);
  const Index m = a.size(-2), k = a.size(-1), n = b.size(-1);
  const Shape batch_a(a.shape().begin(), a.rank() - 2), batch_b(b.shape().begin(), b.rank() - 2);
  const Shape batch = broadcast_shapes("oracle", batch_a, batch_b);
  const auto numbers = [](const Shape& shape) {
    return filled(shape, [](Index i) { return static_cast<double>(i); });
  };
  Shape shape = batch;
  shape.append(m);
  shape.append(n);
  const Tensor in_a = numbers(batch_a), in_b = numbers(batch_b);
  const Tensor y = filled(shape, [&](Index i) {
    const Index matrix = i / (m * n), row = i / n % m, column = i % n;
    const auto from_a = static_cast<Index>(broadcast_at(in_a, batch, matrix)) * m * k;
    const auto from_b = static_cast<Index>(broadcast_at(in_b, batch, matrix)) * k * n;
    double total = 0;
    for (Index j = 0; j < k; ++j) total += a.at(from_a + row * k + j) * b.at(from_b + j * n + column);
    return scale * total;
  });
  return output_by_head ? plain(by_head(y)) : y;
}

inline Factor factor(const Tensor& x, bool is_transposed, bool is_by_head = false) {
  const Factor plain_or_by_head = is_by_head ? by_head(x) : Factor(x);
  return is_transposed ? transposed(plain_or_by_head) : plain_or_by_head;
}

}  // namespace tapeformer
