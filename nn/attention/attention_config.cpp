#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/attention/multi_head.h>

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

std::unique_ptr<Attention> make_attention(const AttentionConfig& config, Generator& random) {
  if (config.kind != AttentionKind::multi_head) {
    throw Error(std::string("[attention] ") + name_of(config.kind) + " is not there");
  }
  return std::make_unique<MultiHeadAttention>(
      MultiHeadConfig{config.width, config.heads, config.memory_width, config.key_width, config.value_width,
                      config.dropout, config.bias},
      random);
}

}  // namespace tapeformer
