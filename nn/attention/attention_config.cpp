#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/attention/additive.h>
#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/attention/grouped_query.h>
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

Index AttentionConfig::key_heads() const {
  if (kind == AttentionKind::multi_query) return 1;
  if (kind != AttentionKind::grouped_query) return heads;
  if (groups > 0) return groups;
  for (Index divisor = 2; divisor <= heads / divisor; ++divisor) {
    if (heads % divisor == 0) return heads / divisor;
  }
  return 1;
}

void AttentionConfig::check() const {
  const std::string kind_and = std::string("attention=") + name_of(kind) + ", ";
  const auto got = [](const char* name, Index size) {
    return std::string(name) + "=" + std::to_string(size);
  };
  const auto require = [&](bool holds, const char* rule, const std::string& sizes_and_remedy) {
    if (!holds) throw Error(std::string("[attention] ") + rule + "; got " + kind_and + sizes_and_remedy);
  };
  check_sizes("attention",
              {{"groups", groups},
               {"memory_width", memory_width},
               {"latent_width", latent_width},
               {"query_latent_width", query_latent_width},
               {"rotary_width", rotary_width}},
              kind_and);
  const bool is_latent = kind == AttentionKind::latent;
  const Index turned_width =
      resolved_heads("attention", width, output_width, {heads, key_heads(), key_width, value_width}, kind_and)
          .key_width;
  require(groups == 0 || kind == AttentionKind::grouped_query, "groups are for gqa",
          got("groups", groups) + "; try groups=0");
  require((latent_width == 0 && query_latent_width == 0 && rotary_width == 0) || is_latent,
          "latent_width, query_latent_width and rotary_width are for mla",
          got("latent_width", latent_width) + ", " + got("query_latent_width", query_latent_width) + ", " +
              got("rotary_width", rotary_width) + "; try 0");
  require(rotary_width % 2 == 0, "rotary_width must be even", got("rotary_width", rotary_width));
  if (!rotary || cross || is_latent) return;  // latent attention has rotary keys of their own
  require(kind != AttentionKind::additive,
          "additive scores are no products, so rotary positions do not apply",
          "rotary positions; try sinusoidal or learned ones");
  const Index turned = or_else(rotations.width, turned_width);
  require(turned % 2 == 0 && rotations.base > 0 && rotations.factor > 0,
          "rotary positions turn pairs of a head's components, with a positive base and factor",
          got("components", turned) + ", base=" + std::to_string(rotations.base) +
              ", factor=" + std::to_string(rotations.factor) + "; try an even width of the heads");
}

AttentionConfig AttentionConfig::resolved() const {
  check();
  AttentionConfig full = *this;
  const PackedHeads sizes =
      resolved_heads("attention", width, output_width, {heads, key_heads(), key_width, value_width});
  if (kind == AttentionKind::grouped_query) full.groups = sizes.groups;
  full.key_width = sizes.key_width;
  full.value_width = sizes.value_width;
  full.memory_width = or_else(memory_width, width);
  full.output_width = or_else(output_width, width);
  full.rotary = rotary && !cross && kind != AttentionKind::latent;
  full.packed = packed && !cross && kind == AttentionKind::multi_head;
  if (kind != AttentionKind::latent) return full;
  full.rotary_width = cross ? 0 : or_else(rotary_width, std::max<Index>(sizes.key_width / 4 * 2, 2));
  return full;
}

LatentConfig latent_config(const AttentionConfig& config) {
  const AttentionConfig full = config.resolved();
  LatentConfig latent;
  latent.width = full.width;
  latent.heads = full.heads;
  latent.memory_width = full.memory_width;
  latent.output_width = full.output_width;
  latent.key_width = full.key_width;
  latent.value_width = full.value_width;
  latent.latent_width = full.latent_width;
  latent.query_latent_width = full.query_latent_width;
  latent.rotary_width = full.rotary_width;
  latent.dropout = full.dropout;
  latent.rotations = full.rotations;
  return latent;
}

std::unique_ptr<Attention> make_attention(const AttentionConfig& config, Generator& random) {
  if (config.kind == AttentionKind::latent) {
    return std::make_unique<LatentAttention>(latent_config(config), random);
  }
  const AttentionConfig full = config.resolved();
  if (full.kind == AttentionKind::additive) {
    return std::make_unique<AdditiveAttention>(
        AdditiveConfig{full.width, full.heads, full.memory_width, full.output_width, full.key_width,
                       full.value_width, full.dropout, full.bias},
        random);
  }
  if (full.kind == AttentionKind::multi_head) {
    MultiHeadConfig multi_head;
    multi_head.width = full.width;
    multi_head.heads = full.heads;
    multi_head.memory_width = full.memory_width;
    multi_head.output_width = full.output_width;
    multi_head.key_width = full.key_width;
    multi_head.value_width = full.value_width;
    multi_head.dropout = full.dropout;
    multi_head.bias = multi_head.output_bias = full.bias;
    multi_head.packed = full.packed;
    multi_head.rotary = full.rotary;
    multi_head.rotations = full.rotations;
    return std::make_unique<MultiHeadAttention>(multi_head, random);
  }
  GroupedQueryConfig grouped;
  grouped.width = full.width;
  grouped.heads = full.heads;
  grouped.groups = full.key_heads();
  grouped.memory_width = full.memory_width;
  grouped.output_width = full.output_width;
  grouped.key_width = full.key_width;
  grouped.value_width = full.value_width;
  grouped.dropout = full.dropout;
  grouped.bias = full.bias;
  grouped.cross = full.cross;
  grouped.rotary = full.rotary;
  grouped.rotations = full.rotations;
  return std::make_unique<GroupedQueryAttention>(grouped, random);
}

}  // namespace tapeformer
