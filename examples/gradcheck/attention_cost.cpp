#include <tapeformer/examples/gradcheck/attention_cost.h>

#include <cstdio>
#include <ostream>

namespace tapeformer {
namespace {

AttentionConfig config_of(const CheckSizes& sizes, AttentionKind kind) {
  AttentionConfig config;
  config.kind = kind;
  config.width = sizes.width, config.heads = sizes.heads;
  config.key_width = kind == AttentionKind::additive ? sizes.hidden_width : sizes.head_width;
  config.value_width = sizes.value_width;
  if (kind == AttentionKind::grouped_query) config.groups = sizes.groups;
  if (kind == AttentionKind::latent) config.latent_width = sizes.latent_width;
  return config;
}

/// Exact up to six digits, then in powers of a thousand: "12.35 M".
std::string amount(Index count) {
  char text[32];
  double value = static_cast<double>(count);
  if (count < 1000000) {
    std::snprintf(text, sizeof text, "%lld", static_cast<long long>(count));
    return text;
  }
  const char* unit = "kMGTP";
  for (value /= 1000; value >= 1000 && unit[1] != 0; value /= 1000) ++unit;
  std::snprintf(text, sizeof text, "%.2f %c", value, *unit);
  return text;
}

LatentConfig deepseek_v2() {
  LatentConfig config;
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
    char line[128];
    std::snprintf(line, sizeof line, "%-9s %-20s %8lld  %6.2f %%  %10.2f GiB\n", size.name.c_str(),
                  size.formula.c_str(), static_cast<long long>(size.numbers),
                  100 * numbers / static_cast<double>(sizes.front().numbers),
                  numbers * kLayers * kTokens * kBytes / kGibibyte);
    out << line;
  }
}

}  // namespace

std::vector<NamedCost> attention_costs(const CheckSizes& sizes, DType type) {
  AttentionCall call;
  call.batch = sizes.batch, call.queries = sizes.queries, call.type = type;
  AttentionCall decoding = call;
  decoding.queries = 1, decoding.cached = sizes.queries;
  const auto row = [&](const std::string& name, const auto& layer) {
    return NamedCost{name, attention_cost(layer, call), attention_cost(layer, decoding).forward_flops};
  };
  const auto of_kind = [&](AttentionKind kind) { return row(name_of(kind), config_of(sizes, kind)); };
  LatentConfig naive = latent_config(config_of(sizes, AttentionKind::latent));
  naive.form = LatentForm::naive;
  LatentConfig absorbed = naive;
  absorbed.form = LatentForm::absorbed;
  return {of_kind(AttentionKind::multi_head),  of_kind(AttentionKind::grouped_query),
          of_kind(AttentionKind::multi_query), row("mla, naive", naive),
          row("mla, absorbed", absorbed),      of_kind(AttentionKind::additive)};
}

std::vector<CacheSize> cache_sizes_of_deepseek_v2() {
  const LatentConfig latent = deepseek_v2();
  AttentionConfig config;
  config.width = latent.width, config.heads = latent.heads;
  config.key_width = latent.key_width, config.value_width = latent.value_width;
  const auto numbers = [](const auto& layer) {
    return attention_cost(layer, {}).cache_bytes_per_token / bytes_of(AttentionCall().type);
  };
  std::vector<CacheSize> sizes{{"mha", "2 H d_h", numbers(config)}};
  config.kind = AttentionKind::grouped_query, config.groups = 8;
  sizes.push_back({"gqa", "2 G d_h, G=8", numbers(config)});
  config.kind = AttentionKind::multi_query, config.groups = 0;
  sizes.push_back({"mqa", "2 d_h", numbers(config)});
  sizes.push_back({"mla", "d_c + d_R", numbers(latent)});
  return sizes;
}

void print_attention_cost(std::ostream& out, const CheckSizes& sizes, DType type) {
  constexpr const char* kRow = "%-14s %10s %14s %14s %16s %18s %14s\n";
  char line[200];
  std::snprintf(line, sizeof line,
                "Self-attention with biases (mla: none), B=%lld T=%lld C=%lld H=%lld G=%lld D=%lld E=%lld, "
                "latents %lld and %lld rotary, hidden %lld, %s\n",
                static_cast<long long>(sizes.batch), static_cast<long long>(sizes.queries),
                static_cast<long long>(sizes.width), static_cast<long long>(sizes.heads),
                static_cast<long long>(sizes.groups), static_cast<long long>(sizes.head_width),
                static_cast<long long>(sizes.value_width), static_cast<long long>(sizes.latent_width),
                static_cast<long long>(config_of(sizes, AttentionKind::latent).resolved().rotary_width),
                static_cast<long long>(sizes.hidden_width), name_of(type));
  out << line;
  std::snprintf(line, sizeof line, kRow, "", "parameters", "forward FLOP", "backward FLOP",
                "activation bytes", "cache bytes/token", "decoding FLOP");
  out << line;
  for (const auto& [name, cost, decoding_flops] : attention_costs(sizes, type)) {
    std::snprintf(line, sizeof line, kRow, name.c_str(), amount(cost.parameters).c_str(),
                  amount(cost.forward_flops).c_str(), amount(cost.backward_flops).c_str(),
                  amount(cost.activation_bytes).c_str(), amount(cost.cache_bytes_per_token).c_str(),
                  amount(decoding_flops).c_str());
    out << line;
  }
  out << "FLOP: of products, 2 a multiply-add, every query seeing every key; activations: kept for "
         "backward\n";
  print_cache_sizes(out);
}

}  // namespace tapeformer
