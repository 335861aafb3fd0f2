#include <tapeformer/autograd/config/retired_fields.h>
#include <tapeformer/autograd/error.h>

#include <nlohmann/json.hpp>

namespace tapeformer {
namespace {

/// For each field, by its name in config.json (of a model, of `training`, or of both), its default, or null
/// if any value can be dropped, and the last version that had it.
constexpr const char* kRetiredFields = R"({
  "beta2_decay":      [null,   "0.1.0"],
  "cautious_decay":   [0,      "0.1.0"],
  "embedding_mixing": [false,  "0.1.0"],
  "embedding_norm":   [false,  "0.1.0"],
  "fix_norm":         [false,  "0.1.0"],
  "learned_softcap":  [false,  "0.1.0"],
  "least_scale":      [null,   "0.1.0"],
  "momentum_start":   [null,   "0.1.0"],
  "momentum_warmup":  [0,      "0.1.0"],
  "prefix":           [null,   "0.1.0"],
  "r_drop":           [0,      "0.1.0"],
  "row_beta2":        [0,      "0.1.0"],
  "stochastic_depth": [0,      "0.1.0"],
  "token_lambda":     [false,  "0.1.0"],
  "update_clip":      [null,   "0.1.0"],
  "value_embeddings": ["none", "0.1.0"]
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
  const auto &usual = found->at(0), &last = found->at(1);
  if (usual.is_null() || value == usual) return true;
  throw Error(name + " was retired in the course of version " + last.get<std::string>() + " and must be " +
              usual.dump() + "; got " + value.dump(-1, ' ', true) + "; try the program that wrote it");
}

}  // namespace tapeformer
