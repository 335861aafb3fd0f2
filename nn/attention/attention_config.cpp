#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/attention/additive.h>
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

std::unique_ptr<Attention> make_additive(const AttentionConfig& config, Generator& random) {
  if (config.rotary) throw Error("[attention] additive scores have no rotary positions; try rotary=false");
  return std::make_unique<AdditiveAttention>(
      AdditiveConfig{config.width, config.heads, config.memory_width, config.key_width, config.value_width,
                     config.dropout, config.bias},
      random);
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

void AttentionConfig::check() const {
  const auto require = [](bool holds, const std::string& rule) {
    if (!holds) throw Error("[attention] " + rule);
  };
  const auto got = [](const char* name, Index size) {
    return std::string(name) + "=" + std::to_string(size);
  };
  const std::string of = std::string("; got attention=") + name_of(kind) + ", ";
  require(width > 0 && heads > 0,
          "width and heads must be positive" + of + got("width", width) + ", " + got("heads", heads));
  require(groups >= 0 && memory_width >= 0 && key_width >= 0 && value_width >= 0 && latent_width >= 0 &&
              rotary_width >= 0,
          "no size may be negative" + of + got("groups", groups) + ", " + got("memory_width", memory_width) +
              ", " + got("key_width", key_width) + ", " + got("value_width", value_width) + ", " +
              got("latent_width", latent_width) + ", " + got("rotary_width", rotary_width));
  require((key_width > 0 && value_width > 0) || width % heads == 0,
          "width must be divisible by heads" + of + got("width", width) + ", " + got("heads", heads) +
              "; try a width that is a multiple of the heads");
  require(groups == 0 || kind == AttentionKind::grouped_query,
          "groups are for gqa" + of + got("groups", groups) + "; try groups=0");
  require(groups == 0 || heads % groups == 0,
          "heads must be a multiple of groups" + of + got("heads", heads) + ", " + got("groups", groups));
  require((latent_width == 0 && rotary_width == 0) || kind == AttentionKind::latent,
          "latent_width and rotary_width are for mla" + of + got("latent_width", latent_width) + ", " +
              got("rotary_width", rotary_width) + "; try 0");
  require(rotary_width % 2 == 0, "rotary_width must be even" + of + got("rotary_width", rotary_width));
  if (!rotary || kind == AttentionKind::latent) return;  // latent attention has rotary keys of their own
  require(kind != AttentionKind::additive,
          "additive scores are no products, so rotary positions do not apply" + of +
              "rotary positions; try sinusoidal or learned ones");
  const Index turned = rotations.width > 0 ? rotations.width : key_width > 0 ? key_width : width / heads;
  require(turned % 2 == 0 && rotations.base > 0 && rotations.factor > 0,
          "rotary positions turn pairs of a head's components, with a positive base and factor" + of +
              got("components", turned) + ", base=" + std::to_string(rotations.base) +
              ", factor=" + std::to_string(rotations.factor) + "; try an even width of the heads");
}

std::unique_ptr<Attention> make_attention(const AttentionConfig& config, Generator& random) {
  switch (config.kind) {
    case AttentionKind::grouped_query:
    case AttentionKind::multi_query: return make_grouped_query(config, random);
    case AttentionKind::latent: return make_latent(config, random);
    case AttentionKind::additive: return make_additive(config, random);
    default: break;
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
