#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/attention/additive.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/differential.h>
#include <tapeformer/nn/attention/latent.h>
#include <tapeformer/nn/attention/linear_attention.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/nn/attention/multi_head_config.h>

#include <algorithm>
#include <utility>

namespace tapeformer {
namespace {

template <class Layer>
std::unique_ptr<Attention> make(const AttentionConfig& config, Generator& random) {
  return std::make_unique<Layer>(config, random);
}

/// The fields of kinds that are a MultiHeadAttention: `others`, and those of all its pieces.
std::vector<std::string> multi_head_fields(std::vector<std::string> others) {
  for (const char* const name :
       {"output_dropout", "output_bias", "sequence_first", "score_scale", "shared_keys"})
    others.emplace_back(name);
  AttentionPieces::Fields pieces;
  FieldList fields;
  pieces.describe(FieldVisitor(fields), FieldVisitor(fields));
  for (const ConfigField& field : fields) others.push_back(field.name);
  return others;
}

const std::deque<AttentionKind>& built_in_kinds() {
  using MultiHead = MultiHeadAttention;
  using Latent = LatentAttention;
  using Additive = AdditiveAttention;
  using Recurrent = LinearAttention;
  using Differential = DifferentialAttention;
  constexpr unsigned kEverything = kCanRotate | kCanCache | kCanModelLanguage | kCanExport;
  constexpr unsigned kRecurrent = kCanCache | kCanModelLanguage | kHasState;
  // name, title, make, fields that not every kind uses, abilities, complete, cost, forms, own
  static const std::deque<AttentionKind> kinds = {
      {"mha", "multi-head", make<MultiHead>, multi_head_fields({"value_memory_width"}), kEverything,
       complete_multi_head, multi_head_cost},
      {"gqa", "grouped-query", make<MultiHead>, multi_head_fields({"groups"}), kEverything,
       complete_grouped_query, multi_head_cost},
      {"mqa", "multi-query", make<MultiHead>, multi_head_fields({}), kEverything, complete_multi_query,
       multi_head_cost},
      {"mla",
       "latent",
       make<Latent>,
       {"latent_width", "query_latent_width", "rotary_width", "norm", "form", "score_scale"},
       kCanRotate | kCanCache | kCanModelLanguage,
       Latent::complete,
       Latent::cost,
       Latent::forms()},
      {"differential",
       "differential",
       make<Differential>,
       {"groups", "output_bias", "lambda_initial"},
       kCanRotate | kCanCache | kCanModelLanguage,
       Differential::complete,
       Differential::cost},
      {"additive", "additive", make<Additive>, {}, kCanCache, {}, Additive::cost},
      {"gla",
       "gated linear",
       make<Recurrent>,
       {},
       kRecurrent,
       Recurrent::complete,
       Recurrent::cost,
       {},
       {Recurrent::decay_rank()}},
      {"deltanet",
       "delta rule",
       make<Recurrent>,
       {},
       kRecurrent,
       Recurrent::complete,
       Recurrent::cost,
       {},
       {Recurrent::convolution_taps()}},
      {"gated_deltanet",
       "gated delta rule",
       make<Recurrent>,
       {},
       kRecurrent,
       Recurrent::complete,
       Recurrent::cost,
       {},
       {Recurrent::convolution_taps()}},
      {"kda",
       "Kimi delta",
       make<Recurrent>,
       {},
       kRecurrent,
       Recurrent::complete,
       Recurrent::cost,
       {},
       {Recurrent::convolution_taps(), Recurrent::decay_rank()}},
  };
  return kinds;
}

std::deque<AttentionKind>& table() {
  static std::deque<AttentionKind> kinds = built_in_kinds();
  return kinds;
}

template <class Which, class Text>
std::string joined(const Which& which, const Text& text) {
  std::string all;
  for (const AttentionKind& kind : attention_kinds())
    if (which(kind)) all += (all.empty() ? "" : ", ") + text(kind);
  return all;
}

}  // namespace

bool AttentionKind::uses(const std::string& field) const {
  return std::find(fields.begin(), fields.end(), field) != fields.end() || own_value(*this, {}, field);
}

const std::deque<AttentionKind>& attention_kinds() { return table(); }

std::string kind_names(const std::function<bool(const AttentionKind&)>& which) {
  return joined(which, [](const AttentionKind& kind) { return kind.name; });
}

std::string kind_titles(unsigned can, unsigned cannot) {
  return joined([=](const AttentionKind& kind) { return (kind.can & (can | cannot)) == can; },
                [](const AttentionKind& kind) { return kind.name + " (" + kind.title + ")"; });
}

void register_attention_kind(AttentionKind kind) {
  for (const AttentionKind& known : attention_kinds()) {
    if (known.name == kind.name) throw Error("[attention] there is already a kind named " + kind.name);
  }
  table().push_back(std::move(kind));
}

void unregister_attention_kind() {
  if (table().size() == built_in_kinds().size()) throw Error("[attention] no kind has been registered");
  table().pop_back();
}

const AttentionKind& attention_kind(const std::string& name) {
  for (const AttentionKind& kind : attention_kinds()) {
    if (kind.name == name) return kind;
  }
  throw Error("[attention] the kind must be one of " + kind_names([](const AttentionKind&) { return true; }) +
              "; got " + name);
}

std::unique_ptr<Attention> make_attention(const AttentionConfig& config, Generator& random) {
  return attention_kind(config.kind).make(config, random);
}

}  // namespace tapeformer
