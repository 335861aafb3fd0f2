#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/attention.h>
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/attention_check.h>
#include <tapeformer/autograd/ops/attention_plan.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape.h>

namespace tapeformer {
namespace {

constexpr const char* kOp = "scaled_dot_product_attention";
constexpr const char* kPackedOp = "packed_attention";

/// Splits the projection and uses plain operations.
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
  check_attention(kOp, query, key, value, options);
  if (needs_composed(kOp, options)) return composed_attention(query, key, value, options);
  const Index B = query.size(0), T = query.size(1), H = query.size(2), E = value.size(3);
  const AttentionPlan plan =
      plan_attention({B, T, key.size(1), H, key.size(2), query.size(3), E}, options, query.device());
  const Tensor y = Tensor::empty({B, T, H, E}, query.dtype(), query.device());
  const Tensor log_sum = Tensor::empty({B, H, T}, wide(query.dtype()), query.device());
  count_products(kOp, plan, 1, 1);
  dispatch(
      kOp,
      [&](auto on, auto* pq, auto* pk, auto* pv, auto* bias, auto* py, auto* sums) {
        using Float = std::remove_pointer_t<decltype(py)>;
        kernels::attention_forward<Float>(on, plan.shape, pq, pk, pv, bias, py, sums);
      },
      query, key, value, wide(plan.bias()), y, wide(log_sum));
  return record_fused(
      kOp, {query, key, value},
      {query, key, value, y, log_sum, plan.visible.from, plan.visible.to, options.key_mask,
       plan.options.mask},
      y,
      [=](const Tensor& dy, const Gradients& into) {
        count_products(kOp, plan, 3, 2);
        dispatch(
            kOp,
            [&](auto on, auto* pq, auto* pk, auto* pv, auto* bias, auto* py, auto* sums, auto* pd, auto dq,
                auto dk, auto dv) {
              kernels::attention_backward(on, plan.shape, pq, pk, pv, bias, py, sums, pd, dq, dk, dv);
            },
            query, key, value, wide(plan.bias()), y, wide(log_sum), dy, into[0], into[1], into[2]);
      },
      [=] { return composed_attention(query, key, value, plan.options); });
}

Tensor packed_attention(const Tensor& packed, const PackedHeads& heads, const AttentionOptions& options) {
  check_packed_attention(kPackedOp, packed, heads, options);
  if (needs_composed(kPackedOp, options)) return composed_packed_attention(packed, heads, options);
  const Index B = packed.size(0), T = packed.size(1), H = heads.heads, G = heads.groups;
  const Index D = heads.key_width, E = heads.value_width;
  AttentionPlan plan = plan_attention({B, T, T, H, G, D, E}, options, packed.device());
  for (kernels::HeadStrides* strides : {&plan.shape.query, &plan.shape.key, &plan.shape.value}) {
    strides->row = heads.width(), strides->batch = T * heads.width();
  }
  const Index key = H * D, value = key + G * D;  // their first columns
  const Tensor y = Tensor::empty({B, T, H, E}, packed.dtype(), packed.device());
  const Tensor log_sum = Tensor::empty({B, H, T}, wide(packed.dtype()), packed.device());
  count_products(kPackedOp, plan, 1, 1);
  dispatch(
      kPackedOp,
      [&](auto on, auto* x, auto* bias, auto* py, auto* sums) {
        using Float = std::remove_pointer_t<decltype(py)>;
        kernels::attention_forward<Float>(on, plan.shape, x, x + key, x + value, bias, py, sums);
      },
      packed, wide(plan.bias()), y, wide(log_sum));
  return record_fused(
      kPackedOp, {packed},
      {packed, y, log_sum, plan.visible.from, plan.visible.to, options.key_mask, plan.options.mask}, y,
      [=](const Tensor& dy, const Gradients& into) {
        count_products(kPackedOp, plan, 3, 2);
        dispatch(
            kPackedOp,
            [&](auto on, auto* x, auto* bias, auto* py, auto* sums, auto* pd, auto dx) {
              const auto part = [&](Index from) { return decltype(dx){dx.to + from, dx.add}; };
              kernels::attention_backward(on, plan.shape, x, x + key, x + value, bias, py, sums, pd, part(0),
                                          part(key), part(value));
            },
            packed, wide(plan.bias()), y, wide(log_sum), dy, into[0]);
      },
      [=] { return composed_packed_attention(packed, heads, plan.options); });
}

}  // namespace tapeformer
