#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/expression.h>

#include <utility>

namespace tapeformer {
namespace {

/// How much a family would change. An activation, which may come with another gating, and epsilon count less.
std::size_t distance(const std::vector<FieldChange>& changes) {
  std::size_t sum = 0;
  for (const FieldChange& change : changes)
    sum += change.field == "activation" || change.field == "epsilon" ? 1 : 2;
  return sum;
}

}  // namespace

template <class Config>
std::string ExpressionOf<Config>::refusal(const std::string& has, const std::string& wants) const {
  return tapeformer::format("[export] {} has no such model; {} differs least; got {}; try {}", format->name,
                            family->title, has, wants);
}

template <class Config>
void ExpressionOf<Config>::check() const {
  if (changes.empty()) return;
  const auto with = [&](std::string FieldChange::*value) {
    return joined(changes, ", ", [&](const FieldChange& one) { return one.field + "=" + one.*value; });
  };
  throw CheckpointError(refusal(with(&FieldChange::has), with(&FieldChange::wants)));
}

template <class Config>
const ModelFormatOf<Config>& transformers_format() {
  static const ModelFormatOf<Config> format{"transformers", families<Config>()};
  return format;
}

template <class Config>
ExpressionOf<Config> expression_in(const ModelFormatOf<Config>& format, const Config& config) {
  ExpressionOf<Config> best{&format, nullptr, {}, {}};
  const FieldList has = fields_of(config);
  for (const FamilyOf<Config>& family : format.families) {  // the first of equally near ones
    const Config model = ConfigMapOf<Config>::fit(family.describe, config);
    std::vector<FieldChange> changes;
    const FieldList wants = fields_of(model);
    for (const ChangedField& one : changed_fields(wants, has))
      changes.push_back({one.now->name, one.usual->text(), one.now->text()});
    if (best.family == nullptr || distance(changes) < distance(best.changes))
      best = {&format, &family, model, std::move(changes)};
  }
  return best;
}

template struct ExpressionOf<DecoderOnlyConfig>;
template struct ExpressionOf<EncoderDecoderConfig>;
template const ModelFormatOf<DecoderOnlyConfig>& transformers_format();
template const ModelFormatOf<EncoderDecoderConfig>& transformers_format();
template Expression expression_in(const ModelFormat&, const DecoderOnlyConfig&);
template ExpressionOf<EncoderDecoderConfig> expression_in(const ModelFormatOf<EncoderDecoderConfig>&,
                                                          const EncoderDecoderConfig&);

}  // namespace tapeformer
