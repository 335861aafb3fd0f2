#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/attention/multi_head_config.h>

namespace tapeformer {
namespace {

/// Defaults and checks that these kinds share.
void complete_keys(AttentionConfig& config) {
  AttentionPieces::complete(config);
  if (config.shared_keys && config.cross)
    throw Error("[attention] a layer with shared_keys has no values of its own; got attention=" +
                config.kind + ", shared_keys=true, cross=true; try cross=false");
  if (config.shared_keys) config.packed = false;
  if (!config.packed || (config.memory_width == config.width && config.value_memory_width == config.width))
    return;
  throw Error("[attention] a packed projection needs inputs of one width; got attention=" + config.kind +
              ", width=" + std::to_string(config.width) +
              ", memory_width=" + std::to_string(config.memory_width) +
              ", value_memory_width=" + std::to_string(config.value_memory_width) +
              (config.groups > 0 ? "; try cross=true" : "; try packed=false"));
}

}  // namespace

void complete_multi_head(AttentionConfig& config) {
  config.packed = config.packed && !config.cross;
  complete_keys(config);
}

void complete_grouped_query(AttentionConfig& config) {
  const Index H = config.heads;
  for (Index divisor = 2; config.groups == 0 && divisor <= H / divisor; ++divisor) {
    if (H % divisor == 0) config.groups = H / divisor;
  }
  config.groups = or_else(config.groups, 1);
  config.packed = !config.cross;
  complete_keys(config);
}

void complete_multi_query(AttentionConfig& config) {
  config.groups = 1;
  complete_grouped_query(config);
}

AttentionCost multi_head_cost(const AttentionConfig& config, const AttentionCall& call) {
  CostSum sum(call);
  const double C = config.width, H = config.heads, G = config.key_heads(), D = config.key_width,
               E = config.value_width, N = sum.N, M = sum.M;
  sum.projection(N, C, H * D, config.bias);
  if (!config.shared_keys) {
    sum.projection(M, config.memory_width, G * D, config.bias);
    sum.projection(M, config.value_memory_width, G * E, config.bias);
    sum.caches(G * (D + E));
  }
  sum.projection(N, H * E, config.output_width, *config.output_bias);
  sum.attention(H, D, E);
  sum.keeps(N * (C + H * D + H * E) + M * G * (D + E));
  if (call.keys > 0) sum.keeps(M * config.memory_width);
  sum.packed = config.packed;
  AttentionPieces::add_cost(config, call, sum);
  return sum.total();
}

}  // namespace tapeformer
