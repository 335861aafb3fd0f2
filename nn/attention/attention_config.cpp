#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/attention/grouped_query.h>
#include <tapeformer/nn/attention/latent.h>
#include <tapeformer/nn/attention/multi_head.h>

#include <algorithm>
#include <utility>

namespace tapeformer {
namespace {

constexpr std::pair<AttentionKind, const char*> kNames[] = {{AttentionKind::multi_head, "mha"},
                                                            {AttentionKind::grouped_query, "gqa"},
                                                            {AttentionKind::multi_query, "mqa"},
                                                            {AttentionKind::latent, "mla"},
                                                            {AttentionKind::additive, "additive"}};

std::unique_ptr<Attention> make_grouped_query(const AttentionConfig& config, Generator& random) {
  GroupedQueryConfig grouped;
  grouped.width = config.width;
  grouped.heads = config.heads;
  grouped.memory_width = config.memory_width;
  grouped.key_width = config.key_width;
  grouped.value_width = config.value_width;
  grouped.dropout = config.dropout;
  grouped.bias = config.bias;
  grouped.cross = config.cross;
  grouped.rotary = config.rotary && !config.cross;
  grouped.rotations = config.rotations;
  grouped.groups = 1;
  if (config.kind == AttentionKind::grouped_query) {
    grouped.groups = config.groups > 0 ? config.groups : std::max<Index>(config.heads / 2, 1);
    while (config.groups == 0 && config.heads % grouped.groups != 0) --grouped.groups;
  }
  return std::make_unique<GroupedQueryAttention>(grouped, random);
}

std::unique_ptr<Attention> make_latent(const AttentionConfig& config, Generator& random) {
  LatentConfig latent;
  latent.width = config.width;
  latent.heads = config.heads;
  latent.memory_width = config.memory_width;
  latent.key_width = config.key_width;
  latent.value_width = config.value_width;
  latent.latent_width = config.latent_width;
  latent.dropout = config.dropout;
  latent.rotations = config.rotations;
  const Index key_width =
      config.key_width > 0 ? config.key_width : config.width / std::max<Index>(config.heads, 1);
  if (!config.cross) {
    latent.rotary_width =
        config.rotary_width > 0 ? config.rotary_width : std::max<Index>(key_width / 4 * 2, 2);
  }
  return std::make_unique<LatentAttention>(latent, random);
}

}  // namespace

const char* name_of(AttentionKind kind) {
  for (const auto& [known, name] : kNames) {
    if (known == kind) return name;
  }
  return "";
}

AttentionKind attention_kind(const std::string& name) {
  std::string names;
  for (const auto& [kind, known] : kNames) {
    if (name == known) return kind;
    names += names.empty() ? known : std::string(", ") + known;
  }
  throw Error("[attention] the kind must be one of " + names + "; got " + name);
}

std::unique_ptr<Attention> make_attention(const AttentionConfig& config, Generator& random) {
  switch (config.kind) {
    case AttentionKind::grouped_query:
    case AttentionKind::multi_query: return make_grouped_query(config, random);
    case AttentionKind::latent: return make_latent(config, random);
    default: break;
  }
  if (config.kind != AttentionKind::multi_head) {
    throw Error(std::string("[attention] ") + name_of(config.kind) + " is not there");
  }
  MultiHeadConfig multi_head;
  multi_head.width = config.width;
  multi_head.heads = config.heads;
  multi_head.memory_width = config.memory_width;
  multi_head.key_width = config.key_width;
  multi_head.value_width = config.value_width;
  multi_head.dropout = config.dropout;
  multi_head.bias = multi_head.output_bias = config.bias;
  multi_head.packed = config.packed && !config.cross;
  multi_head.rotary = config.rotary;
  multi_head.rotations = config.rotations;
  return std::make_unique<MultiHeadAttention>(multi_head, random);
}

}  // namespace tapeformer
