#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/embedding.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/ids.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// The gradient of embedding as a recorded operation, whose gradient is embedding.
Tensor embedding_gradient(const Tensor& dy, const Tensor& ids, Index vocabulary) {
  const Index count = ids.elements(), width = dy.size(-1);
  const std::int32_t* id = ids.address<std::int32_t>();
  const Tensor dtable = Tensor::empty({vocabulary, width}, wide(dy.dtype()), dy.device());
  dispatch("embedding_gradient", operands(dy, wide(dtable)), [&](auto on, auto* from, auto* to) {
    kernels::embedding_backward(on, count, vocabulary, width, id, from, {to, false});
  });
  return record("embedding_gradient", {dy}, {ids}, dtable,
                [ids](const Tensor& d, const Gradients& into) { into[0] += embedding(d, ids); });
}

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& ids) {
  require(table.rank() == 2, "embedding", "the table must be [V, C]", {{"table", table}});
  const Index vocabulary = table.size(0), width = table.size(1), count = ids.elements();
  check_ids("embedding", "ids", ids, vocabulary);
  require_same_device("embedding", "ids", ids, table);
  const std::int32_t* id = ids.address<std::int32_t>();
  Shape shape = ids.shape();
  shape.append(width);
  const Tensor y = Tensor::empty(shape, table.dtype(), table.device());
  dispatch("embedding", operands(table, y), [&](auto on, auto* from, auto* to) {
    kernels::embedding_forward(on, count, vocabulary, width, id, from, to);
  });
  return record("embedding", {table}, {ids}, y, [ids, vocabulary](const Tensor& dy, const Gradients& into) {
    if (into.recorded()) {
      into[0] += embedding_gradient(dy, ids, vocabulary);
      return;
    }
    dispatch("embedding", operands(dy, wide(into[0])), [&](auto on, auto* from, auto to) {
      kernels::embedding_backward(on, ids.elements(), vocabulary, dy.size(-1), ids.address<std::int32_t>(),
                                  from, to);
    });
  });
}

Tensor picked_rows(const Tensor& x, const std::vector<std::int32_t>& rows) {
  for (const std::int32_t row : rows)
    require(row >= 0 && row < x.size(0), "picked_rows", "rows must exist", {{"x", x}, {"row", row}});
  // Embeddings are floating-point; f64 represents every 32-bit integer.
  if (!is_floating(x.dtype())) return picked_rows(x.to(DType::f64), rows).to(x.dtype());
  const Tensor ids = Tensor::empty({static_cast<Index>(rows.size())}, DType::i32, Device::cpu());
  std::copy(rows.begin(), rows.end(), ids.data<std::int32_t>());
  Shape shape = x.shape();
  const Index width = shape.elements(1, shape.rank());
  const Tensor picked = embedding(x.alias({x.size(0), width}), ids.to(x.device()));
  shape.set(0, ids.elements());
  return picked.alias(shape);
}

void pick_rows(Tensor& x, const std::vector<std::int32_t>& rows) {
  const Tensor picked = picked_rows(x, rows);
  if (x.device().is_cuda() && picked.shape() == x.shape()) {
    x.copy_from(picked);
  } else {
    x = picked;
  }
}

}  // namespace tapeformer
