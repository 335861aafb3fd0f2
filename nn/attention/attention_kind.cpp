#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/attention/additive.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/differential.h>
#include <tapeformer/nn/attention/latent.h>
#include <tapeformer/nn/attention/linear_attention.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/nn/attention/native_sparse.h>

#include <algorithm>

namespace tapeformer {
namespace {

template <class Layer>
std::unique_ptr<Attention> make(const AttentionConfig& config, Generator& random) {
  return std::make_unique<Layer>(config, random);
}

/// A kind that is a MultiHeadAttention, with the fields of all its pieces.
AttentionKind multi_head_kind(const char* name, const char* title, std::vector<std::string> fields) {
  for (const char* const field :
       {"output_dropout", "output_bias", "sequence_first", "score_scale", "shared_keys"})
    fields.emplace_back(field);
  AttentionPieces::Fields pieces;
  FieldList described;
  pieces.describe(FieldVisitor(described), FieldVisitor(described));
  for (const ConfigField& field : described) fields.push_back(field.name);
  using Layer = MultiHeadAttention;
  constexpr unsigned kCan = kCanRotate | kCanCache | kCanModelLanguage | kCanExport;
  return {name, title, make<Layer>, std::move(fields), kCan, Layer::complete, Layer::add_cost};
}

/// A kind with a state.
AttentionKind linear_kind(const char* name, const char* title) {
  using Layer = LinearAttention;
  constexpr unsigned kCan = kCanCache | kCanModelLanguage | kHasState | kOnlyCausal;
  return {name, title, make<Layer>, {}, kCan, Layer::complete, Layer::add_cost, {}, Layer::own_fields(name)};
}

std::deque<AttentionKind>& table() {
  using Latent = LatentAttention;
  using Differential = DifferentialAttention;
  constexpr unsigned kRotates = kCanRotate | kCanCache | kCanModelLanguage;
  // name, title, make, fields that only some kinds use, abilities, complete, add_cost, forms, own
  static std::deque<AttentionKind> kinds = {
      multi_head_kind("mha", "multi-head", {"value_memory_width"}),
      multi_head_kind("gqa", "grouped-query", {"groups"}),
      multi_head_kind("mqa", "multi-query", {}),
      {"mla",
       "latent",
       make<Latent>,
       {"latent_width", "query_latent_width", "rotary_width", "shared_key_rotation", "norm", "form",
        "score_scale", "index_top_k", "index_heads", "index_width", "index_loss", "index_rotary_layout"},
       kRotates,
       Latent::complete,
       Latent::add_cost,
       Latent::forms()},
      {"differential",
       "differential",
       make<Differential>,
       {"groups", "output_bias", "lambda_initial", "head_norm_gain", "head_norm_epsilon"},
       kRotates,
       Differential::complete,
       Differential::add_cost},
      {"additive", "additive", make<AdditiveAttention>, {}, kCanCache, {}, AdditiveAttention::add_cost},
      {"nsa",
       "native sparse",
       make<NativeSparseAttention>,
       {"groups"},
       kRotates | kOnlyCausal,
       NativeSparseAttention::complete,
       NativeSparseAttention::add_cost,
       {},
       NativeSparseAttention::own_fields()},
      linear_kind("gla", "gated linear"),
      linear_kind("deltanet", "delta rule"),
      linear_kind("gated_deltanet", "gated delta rule"),
      linear_kind("kda", "Kimi delta"),
  };
  return kinds;
}

}  // namespace

bool AttentionKind::uses(const std::string& field) const {
  return std::find(fields.begin(), fields.end(), field) != fields.end() || own_value(*this, {}, field);
}

const std::deque<AttentionKind>& attention_kinds() { return table(); }

std::string kind_names(const std::function<bool(const AttentionKind&)>& which) {
  std::string names;
  for (const AttentionKind& kind : attention_kinds())
    if (which(kind)) names += (names.empty() ? "" : ", ") + kind.name;
  return names;
}

std::string kind_titles(unsigned can, unsigned cannot) {
  std::string titles;
  for (const AttentionKind& kind : attention_kinds())
    if ((kind.can & (can | cannot)) == can)
      titles += format("{}{} ({})", titles.empty() ? "" : ", ", kind.name, kind.title);
  return titles;
}

void register_attention_kind(AttentionKind kind) {
  for (const AttentionKind& known : attention_kinds())
    if (known.name == kind.name) throw Error("[attention] there is already a kind named " + kind.name);
  table().push_back(std::move(kind));
}

void unregister_attention_kind() { table().pop_back(); }

const AttentionKind& attention_kind(const std::string& name) {
  for (const AttentionKind& kind : attention_kinds())
    if (kind.name == name) return kind;
  throw Error(format("[attention] the kind must be one of {}; got {}",
                     kind_names([](const AttentionKind&) { return true; }), name));
}

std::unique_ptr<Attention> make_attention(const AttentionConfig& config, Generator& random) {
  return attention_kind(config.kind).make(config, random);
}

}  // namespace tapeformer
