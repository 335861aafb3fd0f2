#include <tapeformer/autograd/config/retired_fields.h>
#include <tapeformer/autograd/error.h>

#include <nlohmann/json.hpp>

namespace tapeformer {
namespace {

/// For each field that was retired in the course of version 0.1.0, by its name in config.json (of a model, of
/// `training`, or of both), its default, or null if any value can be dropped.
constexpr const char* kRetiredFields = R"({
  "beta2_decay": null,
  "cautious_decay": 0,
  "embedding_mixing": false,
  "embedding_norm": false,
  "fix_norm": false,
  "learned_softcap": false,
  "least_scale": null,
  "momentum_start": null,
  "momentum_warmup": 0,
  "prefix": null,
  "r_drop": 0,
  "row_beta2": 0,
  "stochastic_depth": 0,
  "token_lambda": false,
  "update_clip": null,
  "value_embeddings": "none"
})";

const nlohmann::ordered_json& retired_fields() {
  static const auto fields = nlohmann::ordered_json::parse(kRetiredFields);
  return fields;
}

}  // namespace

void erase_retired_fields(nlohmann::ordered_json& json) {
  for (const auto& field : retired_fields().items()) json.erase(field.key());
}

bool is_retired_field(const std::string& name, const nlohmann::ordered_json& value) {
  const auto found = retired_fields().find(name);
  if (found == retired_fields().end()) return false;
  if (found->is_null() || value == *found) return true;
  throw Error(name + " was retired in the course of version 0.1.0 and must be " + found->dump() + "; got " +
              value.dump(-1, ' ', true) + "; try the program that wrote it");
}

}  // namespace tapeformer
