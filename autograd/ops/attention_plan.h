#pragma once

#include <tapeformer/autograd/kernels/attention.h>
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/attention_visibility.h>

namespace tapeformer {

struct AttentionSizes {
  Index batch, queries, keys;    // B, T, S
  Index heads, groups;           // H, G
  Index key_width, value_width;  // D, E
};

/// What the kernels are told, and what their pointers point into.
struct AttentionPlan {
  kernels::AttentionShape shape;
  AttentionOptions options;
  VisibleKeys visible;
  Tensor bias() const;  ///< the additive mask, in the wide type; undefined if there is none
};

/// What the scores of keys of width D are multiplied by.
double attention_scale(const AttentionOptions& options, Index D);

/// For queries, keys and values of a tensor each, on `device`; the options are checked already.
AttentionPlan plan_attention(const AttentionSizes& sizes, const AttentionOptions& options, Device device);

/// True when only the composed path can do what is asked: hand out weights, or pass a gradient to the mask.
bool needs_composed(const char* op, const AttentionOptions& options);

/// Tells a Profile of so many products as wide as keys and as values for each pair that the ranges of
/// visible keys leave. Pairs that a mask takes out are computed all the same, and count. A profile of a
/// GPU waits for them.
void count_products(const char* op, const AttentionPlan& plan, Index of_key_width, Index of_value_width);

}  // namespace tapeformer
