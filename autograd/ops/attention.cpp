#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/attention_check.h>
#include <tapeformer/autograd/ops/shape.h>

namespace tapeformer {
namespace {

/// The projection taken apart, and plain operations.
Tensor composed_packed_attention(const Tensor& packed, const PackedHeads& heads,
                                 const AttentionOptions& options) {
  const Index B = packed.size(0), T = packed.size(1);
  Index from = 0;
  const auto part = [&](Index count, Index width) {
    const Tensor x = reshape(slice(packed, 2, from, count * width), Shape{B, T, count, width});
    from += count * width;
    return x;
  };
  const Tensor query = part(heads.heads, heads.key_width), key = part(heads.groups, heads.key_width);
  return composed_attention(query, key, part(heads.groups, heads.value_width), options);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options) {
  check_attention("scaled_dot_product_attention", query, key, value, options);
  return composed_attention(query, key, value, options);
}

Tensor packed_attention(const Tensor& packed, const PackedHeads& heads, const AttentionOptions& options) {
  check_packed_attention("packed_attention", packed, heads, options);
  return composed_packed_attention(packed, heads, options);
}

}  // namespace tapeformer
