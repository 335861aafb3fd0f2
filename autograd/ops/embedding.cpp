#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/embedding.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/ids.h>
#include <tapeformer/autograd/tape/tape.h>

namespace tapeformer {
namespace {

/// The gradient of embedding as a recorded operation, whose gradient is embedding.
Tensor embedding_gradient(const Tensor& dy, const Tensor& ids, Index vocabulary) {
  const Index count = ids.elements(), width = dy.size(-1);
  const std::int32_t* id = ids.address<std::int32_t>();
  const Tensor dtable = Tensor::empty({vocabulary, width}, wide(dy.dtype()), dy.device());
  dispatch(
      "embedding_gradient",
      [&](auto on, auto* from, auto* to) {
        kernels::embedding_backward(on, count, vocabulary, width, id, from, {to, false});
      },
      dy, wide(dtable));
  return record("embedding_gradient", {dy}, {ids}, dtable,
                [ids](const Tensor& d, const Gradients& into) { into[0] += embedding(d, ids); });
}

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& ids) {
  if (table.rank() != 2) {
    throw ShapeError("[embedding] the table must be [V, C]; got table=" + table.describe());
  }
  const Index vocabulary = table.size(0), width = table.size(1), count = ids.elements();
  check_ids("embedding", "ids", ids, vocabulary);
  require_same_device("embedding", "ids", ids, table);
  const std::int32_t* id = ids.address<std::int32_t>();
  Shape shape = ids.shape();
  shape.append(width);
  const Tensor y = Tensor::empty(shape, table.dtype(), table.device());
  dispatch(
      "embedding",
      [&](auto on, auto* from, auto* to) {
        kernels::embedding_forward(on, count, vocabulary, width, id, from, to);
      },
      table, y);
  return record("embedding", {table}, {ids}, y, [ids, vocabulary](const Tensor& dy, const Gradients& into) {
    if (into.recorded()) {
      into[0] += embedding_gradient(dy, ids, vocabulary);
      return;
    }
    dispatch(
        "embedding",
        [&](auto on, auto* from, auto to) {
          kernels::embedding_backward(on, ids.elements(), vocabulary, dy.size(-1),
                                      ids.address<std::int32_t>(), from, to);
        },
        dy, wide(into[0]));
  });
}

}  // namespace tapeformer
