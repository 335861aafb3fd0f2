#include <tapeformer/examples/gradcheck/attention_checks.h>
#include <tapeformer/examples/gradcheck/attention_cost.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/nn/experts.h>

#include <algorithm>
#include <ostream>

namespace tapeformer {
namespace {

/// Exact up to six digits, then in powers of a thousand: "12.35 M".
std::string amount(Index count) {
  if (count < 1000000) return std::to_string(count);
  auto value = static_cast<double>(count) / 1000;
  std::size_t unit = 0;
  for (; value >= 1000 && unit < 4; value /= 1000) ++unit;
  return format("{:.2f} ", value) + "kMGTP"[unit];
}

/// Prints the costs of a network for all tokens, and of experts with as many active parameters.
void print_network_costs(std::ostream& out, const CheckSizes& sizes) {
  constexpr const char* kRow = "{:-30} {:12} {:12} {:14} {:14}\n";
  FeedForwardConfig network{sizes.width};
  network.gated = true, network.bias = false;
  out << "\nGated feed-forward networks:\n"
      << format(kRow, "", "parameters", "of a token", "forward FLOP", "backward FLOP");
  const auto print = [&](const char* name, const ExpertsConfig& experts) {
    const FeedForwardCost cost = feed_forward_cost(network, experts, sizes.batch * sizes.queries);
    out << format(kRow, name, amount(cost.parameters), amount(cost.active), amount(cost.forward_flops),
                  amount(cost.backward_flops));
  };
  print("F = 4 C", {});
  ExpertsConfig experts;
  experts.experts = 8, experts.width = 2 * sizes.width;
  print("2 of 8 experts, F = 2 C", experts);
  experts.experts = 32, experts.active = 6, experts.width = experts.shared = sizes.width / 2;
  experts.shared *= 2;
  print("6 of 32, F = C / 2, shared C", experts);
}

AttentionConfig deepseek_v2() {
  AttentionConfig config;
  config.kind = "mla";
  config.width = 5120, config.heads = 128, config.key_width = config.value_width = 128;
  config.latent_width = 512, config.query_latent_width = 1536, config.rotary_width = 64;
  return config;
}

void print_cache_sizes(std::ostream& out) {
  constexpr double kLayers = 60, kTokens = 128 * 1024, kBytes = 2, kGibibyte = 1 << 30;
  out << "\nOne token in the cache of one layer at DeepSeek-V2's widths, H=128 d_h=128 d_c=512 d_R=64:\n"
         "                                numbers   of mha   60 layers, 128k tokens, 2 bytes each\n";
  const std::vector<CacheSize> sizes = cache_sizes_of_deepseek_v2();
  for (const CacheSize& size : sizes) {
    const auto numbers = static_cast<double>(size.numbers);
    out << format("{:-9} {:-20} {:8}  {:6.2f} %  {:10.2f} GiB\n", size.name, size.formula, size.numbers,
                  100 * numbers / static_cast<double>(sizes.front().numbers),
                  numbers * kLayers * kTokens * kBytes / kGibibyte);
  }
}

}  // namespace

std::vector<NamedCost> attention_costs(const CheckSizes& sizes, DType type) {
  AttentionCall call;
  call.batch = sizes.batch, call.queries = sizes.queries, call.type = type;
  AttentionCall decoding = call;
  decoding.queries = 1, decoding.cached = sizes.queries;
  std::vector<NamedCost> costs;
  const auto add = [&](const std::string& name, const AttentionConfig& config) {
    costs.push_back({name, attention_cost(config, call), attention_cost(config, decoding).forward_flops});
  };
  for (const AttentionKind& kind : attention_kinds()) {
    if (!kind.add_cost) continue;
    AttentionConfig config = attention_config(sizes, kind);
    if (kind.forms.empty()) add(kind.name, config);
    for (const AttentionForm& form : kind.forms) {
      form.choose(config);
      add(kind.name + ", " + form.name, config);
    }
    if (kind.name != "gqa") continue;
    config.moba_block = std::max<Index>(2, sizes.queries / 32);
    add(format("gqa, {} of {}", config.moba_top_k, config.moba_block), config);
  }
  return costs;
}

std::vector<CacheSize> cache_sizes_of_deepseek_v2() {
  const AttentionConfig latent = deepseek_v2();
  AttentionConfig config;
  config.width = latent.width, config.heads = latent.heads;
  config.key_width = latent.key_width, config.value_width = latent.value_width;
  const auto numbers = [](const AttentionConfig& layer) {
    return attention_cost(layer, {}).cache_bytes_per_token / bytes_of(AttentionCall().type);
  };
  std::vector<CacheSize> sizes{{"mha", "2 H d_h", numbers(config)}};
  config.kind = "gqa", config.groups = 8;
  sizes.push_back({"gqa", "2 G d_h, G=8", numbers(config)});
  config.kind = "mqa", config.groups = 0;
  sizes.push_back({"mqa", "2 d_h", numbers(config)});
  sizes.push_back({"mla", "d_c + d_R", numbers(latent)});
  return sizes;
}

void print_attention_cost(std::ostream& out, const CheckSizes& sizes, DType type) {
  constexpr const char* kRow = "{:-14} {:10} {:14} {:14} {:16} {:18} {:16} {:14}\n";
  out << format(
      "Self-attention with biases (mla: none), B={} T={} C={} H={} G={} D={} E={}, "
      "latents {} and {} rotary, hidden {}, {}\n",
      sizes.batch, sizes.queries, sizes.width, sizes.heads, sizes.groups, sizes.head_width, sizes.value_width,
      sizes.latent_width, attention_config(sizes, attention_kind("mla")).resolved().rotary_width,
      sizes.hidden_width, name_of(type));
  out << format(kRow, "", "parameters", "forward FLOP", "backward FLOP", "activation bytes",
                "cache bytes/token", "cache bytes/row", "decoding FLOP");
  for (const auto& [name, cost, decoding_flops] : attention_costs(sizes, type)) {
    out << format(kRow, name, amount(cost.parameters), amount(cost.forward_flops),
                  amount(cost.backward_flops), amount(cost.activation_bytes),
                  amount(cost.cache_bytes_per_token), amount(cost.cache_bytes_per_row),
                  amount(decoding_flops));
  }
  out << "FLOP: of products, 2 per multiply-add, every query seeing every key; activations: kept for "
         "backward\n";
  print_network_costs(out, sizes);
  print_cache_sizes(out);
}

}  // namespace tapeformer
