#pragma once

#include <tapeformer/examples/gradcheck/attention_modes.h>
#include <tapeformer/nn/attention/cost.h>

#include <iosfwd>
#include <string>
#include <vector>

namespace tapeformer {

struct NamedCost {
  std::string name;  ///< "mla, absorbed"
  AttentionCost cost;
  Index decoding_flops = 0;  ///< for one more token in every row, with all earlier tokens in the cache
};

/// The costs of every kind of self-attention at these sizes, where every query sees every key.
std::vector<NamedCost> attention_costs(const CheckSizes& sizes, DType type);

/// The numbers per token that one layer's cache holds, with DeepSeek-V2's widths and a kind of attention.
/// Source:  DeepSeek-AI 2024, arXiv:2405.04434, table 1 and section 3.1.2
struct CacheSize {
  std::string name, formula;
  Index numbers = 0;
};
std::vector<CacheSize> cache_sizes_of_deepseek_v2();

void print_attention_cost(std::ostream& out, const CheckSizes& sizes, DType type);

}  // namespace tapeformer
