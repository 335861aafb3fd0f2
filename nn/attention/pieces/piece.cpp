#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/attention/pieces/piece.h>

namespace tapeformer {
namespace {

/// A part of packed rows: `heads` heads of a width, from column `from` on.
void copy_out(Tensor& part, const Tensor& packed, Index from, Index heads, Index width) {
  if (!part.defined() && packed.defined()) part = split_heads(slice(packed, -1, from, heads * width), heads);
}

}  // namespace

void CallHeads::take_apart() {
  if (!packed_btn.defined()) return;
  const Index H = sizes.heads, G = sizes.groups, D = sizes.key_width, E = sizes.value_width;
  const TensorList parts = split(packed_btn, -1, {H * D, G * D, G * E});
  packed_btn = {};
  query_bthd = split_heads(parts[0], H);
  new_kv = {split_heads(parts[1], G), split_heads(parts[2], G)};
}

const Tensor& CallHeads::query() {
  copy_out(query_bthd, packed_btn, 0, sizes.heads, sizes.key_width);
  return query_bthd;
}

const Tensor& CallHeads::key() {
  copy_out(new_kv.key_bsgd, packed_btn, sizes.heads * sizes.key_width, sizes.groups, sizes.key_width);
  return new_kv.key_bsgd;
}

const Tensor& CallHeads::value() {
  if (context.shared.value_bsge.defined()) return context.shared.value_bsge;
  const Index from = (sizes.heads + sizes.groups) * sizes.key_width;
  copy_out(new_kv.value_bsge, packed_btn, from, sizes.groups, sizes.value_width);
  return new_kv.value_bsge;
}

void CallHeads::release() {
  packed_btn = query_bthd = {};
  new_kv = {};
}

}  // namespace tapeformer
