#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/picked_rows.h>

#include <algorithm>

namespace tapeformer {

Tensor picked_rows(const Tensor& x, const std::vector<std::int32_t>& rows) {
  for (const std::int32_t row : rows) {
    if (row >= 0 && row < x.size(0)) continue;
    throw ShapeError("[picked_rows] rows must be there; got x=" + x.describe() + ", row " +
                     std::to_string(row));
  }
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
