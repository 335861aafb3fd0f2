#include <tapeformer/autograd/config/retired_fields.h>
#include <tapeformer/autograd/error.h>

#include <nlohmann/json.hpp>

namespace tapeformer {
namespace {

struct RetiredField {
  const char* name;   ///< in config.json: of a model, of `training`, or of both
  const char* value;  ///< its default, as JSON; nullptr where any value can be left out
  const char* last;   ///< the last version that had it
};

constexpr RetiredField kRetiredFields[] = {
    {"cautious_decay", "0", "0.1.0"},     {"embedding_mixing", "false", "0.1.0"},
    {"fix_norm", "false", "0.1.0"},       {"learned_softcap", "false", "0.1.0"},
    {"momentum_start", nullptr, "0.1.0"}, {"momentum_warmup", "0", "0.1.0"},
    {"row_beta2", "0", "0.1.0"},          {"stochastic_depth", "0", "0.1.0"},
    {"token_lambda", "false", "0.1.0"},   {"value_embeddings", "\"none\"", "0.1.0"},
};

}  // namespace

bool is_retired_field(const std::string& name, const nlohmann::ordered_json& value) {
  for (const RetiredField& field : kRetiredFields) {
    if (name != field.name) continue;
    if (field.value == nullptr || value == nlohmann::ordered_json::parse(field.value)) return true;
    throw Error(name + " was retired after version " + field.last + " and must be " + field.value + "; got " +
                value.dump(-1, ' ', true) + "; try version " + field.last);
  }
  return false;
}

}  // namespace tapeformer
