#pragma once

#include <tapeformer/nn/attention/basic/single_head.h>

namespace tapeformer {

struct ConcatenatedHeadsConfig {
  SingleHeadConfig head;  ///< of every head; a key_width of 0 is width / heads, a value_width of 0 key_width
  Index heads = 1;        ///< H
  bool output = false;    ///< mixes the heads by a projection to the width of the input
};

/// Multi-head attention in its plainest form: independent heads, concatenated. It computes what
/// MultiHeadAttention does in one pass with the rows of all heads' projections. It keeps no cache.
/// Math:    y = concat_h head_h(query, memory), or output(that)
/// Shapes:  query [B, T, C], memory [B, S, memory width] -> y [B, T, H E], or [B, T, C]
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2
class ConcatenatedHeads : public Attention {
 public:
  ConcatenatedHeads(const ConcatenatedHeadsConfig& config, Generator& random);

  Tensor operator()(const Tensor& query, const Tensor& memory,
                    const AttentionContext& context = {}) const override;
  CacheWidths cache_widths() const override { return {}; }
  void visit(ParameterVisitor& visitor) override;

 private:
  std::vector<SingleHeadAttention> heads_;
  std::optional<Linear> output_;
};

}  // namespace tapeformer
