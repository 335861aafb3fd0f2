#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/attention/block_attention.h>
#include <tapeformer/autograd/ops/attention/plan.h>
#include <tapeformer/autograd/ops/shape.h>

namespace tapeformer {
namespace {

/// Splits the projection and uses another path.
Tensor unpacked_attention(const Tensor& packed, const PackedHeads& heads, const AttentionOptions& options,
                          Tensor (*attention)(const Tensor&, const Tensor&, const Tensor&,
                                              const AttentionOptions&) = composed_attention) {
  const Index B = packed.size(0), T = packed.size(1);
  Index from = 0;
  const auto part = [&](Index count, Index width) {
    const Tensor x = reshape(slice(packed, 2, from, count * width), Shape{B, T, count, width});
    from += count * width;
    return x;
  };
  const Tensor query = part(heads.heads, heads.key_width), key = part(heads.groups, heads.key_width);
  return attention(query, key, part(heads.groups, heads.value_width), options);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options) {
  constexpr const char* kOp = "scaled_dot_product_attention";
  if (options.block_size != 0) return block_attention(query, key, value, options);
  check_attention(kOp, query, key, value, options);
  if (needs_composed(options)) return composed_attention(query, key, value, options);
  const AttentionPlan plan = plan_attention(query, key, value, options);
  return tiled_attention(kOp, plan, {query, key, value, {}}, [](const auto& in, const auto& planned) {
    return composed_attention(in.query, in.key, in.value, planned.options);
  });
}

Tensor packed_attention(const Tensor& packed, const PackedHeads& heads, const AttentionOptions& options) {
  constexpr const char* kOp = "packed_attention";
  check_packed_attention(kOp, packed, heads, options);
  if (options.block_size != 0) return unpacked_attention(packed, heads, options, block_attention);
  if (needs_composed(options)) return unpacked_attention(packed, heads, options);
  const Index B = packed.size(0), T = packed.size(1), H = heads.heads, G = heads.groups;
  AttentionPlan plan =
      plan_attention({B, T, T, H, G, heads.key_width, heads.value_width}, options, packed.device());
  for (kernels::HeadStrides* strides : {&plan.shape.query, &plan.shape.key, &plan.shape.value}) {
    strides->row = heads.width(), strides->batch = T * heads.width();
  }
  return tiled_attention(kOp, plan, {packed, {}, {}, {}}, [](const auto& in, const auto& planned) {
    const kernels::AttentionShape& n = planned.shape;
    const PackedHeads all{n.heads, n.groups, n.key_width, n.value_width};
    return unpacked_attention(in.query, all, planned.options);
  });
}

}  // namespace tapeformer
