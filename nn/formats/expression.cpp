#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/expression.h>

#include <utility>

namespace tapeformer {
namespace {

/// Without the fields that only the attention of `model` has.
std::vector<FieldChange> changes_between(const DecoderOnlyConfig& model, const DecoderOnlyConfig& other) {
  std::vector<FieldChange> changes;
  const FieldList has = fields_of(model), wants = fields_of(other);
  for (std::size_t i = 0; i < has.size(); ++i)
    if (wants[i].value() && has[i].value() != wants[i].value())
      changes.push_back({has[i].name, has[i].text(), wants[i].text()});
  return changes;
}

/// How much a family would change: little by a number, or by the activation that comes with another gating.
std::size_t distance(const std::vector<FieldChange>& changes) {
  std::size_t sum = 0;
  for (const FieldChange& change : changes)
    sum += change.field == "activation" || change.field == "epsilon" ? 1 : 2;
  return sum;
}

}  // namespace

std::string Expression::refusal(const std::string& has, const std::string& wants) const {
  return tapeformer::format("[export] {} has no such model; {} differs least; got {}; try {}", format->name,
                            family->title, has, wants);
}

void Expression::check() const {
  if (changes.empty()) return;
  const auto with = [&](std::string FieldChange::*value) {
    return joined(changes, ", ", [&](const FieldChange& one) { return one.field + "=" + one.*value; });
  };
  throw CheckpointError(refusal(with(&FieldChange::has), with(&FieldChange::wants)));
}

const ModelFormat& transformers_format() {
  static const ModelFormat format{"transformers", families()};
  return format;
}

Expression expression_in(const ModelFormat& format, const DecoderOnlyConfig& config) {
  Expression best{&format, nullptr, {}, {}};
  for (const Family& family : format.families) {  // the first of those that are as near
    const DecoderOnlyConfig model = ConfigMap::fit(family.describe, config);
    std::vector<FieldChange> changes = changes_between(config, model);
    if (best.family == nullptr || distance(changes) < distance(best.changes))
      best = {&format, &family, model, std::move(changes)};
  }
  return best;
}

}  // namespace tapeformer
