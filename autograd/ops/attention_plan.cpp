#include <tapeformer/autograd/ops/attention_plan.h>
#include <tapeformer/autograd/ops/broadcast.h>
#include <tapeformer/autograd/profile.h>
#include <tapeformer/autograd/tape.h>

#include <cmath>

namespace tapeformer {
namespace {

bool is_additive(const Tensor& mask) { return mask.defined() && mask.dtype() != DType::boolean; }

kernels::HeadStrides dense(Index rows, Index heads, Index width) {
  return {rows * heads * width, heads * width, width};
}

}  // namespace

Tensor AttentionPlan::bias() const { return is_additive(options.mask) ? options.mask : Tensor(); }

double attention_scale(const AttentionOptions& options, Index D) {
  if (options.scale != 0) return options.scale;
  return D > 0 ? 1 / std::sqrt(static_cast<double>(D)) : 1;
}

AttentionPlan plan_attention(const AttentionSizes& n, const AttentionOptions& options, Device device) {
  AttentionPlan plan;
  plan.options = options;
  if (is_additive(options.mask)) plan.options.mask = options.mask.to(wide(options.mask.dtype()));
  plan.visible = visible_keys(options, n.batch, n.queries, n.keys, device);
  kernels::AttentionShape& shape = plan.shape;
  shape.batch = n.batch, shape.queries = n.queries, shape.keys = n.keys;
  shape.heads = n.heads, shape.groups = n.groups;
  shape.key_width = n.key_width, shape.value_width = n.value_width;
  shape.query = dense(n.queries, n.heads, n.key_width);
  shape.key = dense(n.keys, n.groups, n.key_width);
  shape.value = dense(n.keys, n.groups, n.value_width);
  shape.scale = attention_scale(options, n.key_width);
  if (plan.visible.defined()) {
    shape.key_from = plan.visible.from.address<std::int32_t>();
    shape.key_to = plan.visible.to.address<std::int32_t>();
  }
  if (options.key_mask.defined()) shape.key_mask = options.key_mask.address<bool>();
  const Shape scores{n.batch, n.heads, n.queries, n.keys};
  if (is_additive(options.mask)) {
    broadcast_strides(scores, options.mask.shape(), shape.bias_strides);
  } else if (options.mask.defined()) {
    shape.mask = options.mask.address<bool>();
    broadcast_strides(scores, options.mask.shape(), shape.mask_strides);
  }
  if (options.dropout > 0) {
    const DropoutDraw draw = draw_dropout(options.dropout, options.dropout_key);
    shape.drops = true;
    shape.dropout = draw.stream, shape.dropped = draw.dropped, shape.kept_scale = draw.kept_scale;
  }
  return plan;
}

void count_products(const char* op, const AttentionPlan& plan, Index of_key_width, Index of_value_width) {
  if (!is_profiled()) return;
  const kernels::AttentionShape& n = plan.shape;
  Index pairs = n.batch * n.queries * n.keys;
  if (plan.visible.defined()) {
    pairs = 0;
    const Tensor from = plan.visible.from.to(Device::cpu()), to = plan.visible.to.to(Device::cpu());
    for (Index row = 0; row < n.batch * n.queries; ++row) {
      pairs += to.data<std::int32_t>()[row] - from.data<std::int32_t>()[row];
    }
  }
  count_flops(op, 2 * pairs * n.heads * (of_key_width * n.key_width + of_value_width * n.value_width));
}

bool needs_composed(const char* op, const AttentionOptions& options) {
  return options.weights != nullptr ||
         (is_additive(options.mask) && tape_for(op, &options.mask, 1) != nullptr);
}

}  // namespace tapeformer
