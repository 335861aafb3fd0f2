#include <tapeformer/optim/muon_adamw.h>

#include <sstream>
#include <string>

namespace tapeformer {
namespace {

std::vector<OptimizerGroups::Group> groups_of(const std::vector<Parameter>& parameters,
                                              const MuonAdamWConfig& config) {
  check_fields("muon", fields_of(config));
  std::vector<Parameter> matrices, others;
  for (const Parameter& parameter : parameters)
    (is_hidden_matrix(parameter) ? matrices : others).push_back(parameter);
  std::vector<OptimizerGroups::Group> groups;
  groups.push_back({std::make_unique<Muon>(matrices, config), 1});
  groups.push_back({std::make_unique<AdamW>(others, config.adamw), config.adam_rate});
  return groups;
}

}  // namespace

bool is_hidden_matrix(const Parameter& parameter) {
  if (parameter.value().rank() != 2) return false;
  std::istringstream path(parameter.name());
  for (std::string part; std::getline(path, part, '.');) {
    for (const char* other : {"head", "positions", "relative_bias", "score", "token_types"})
      if (part == other) return false;
    if (part.find("embedding") != std::string::npos) return false;
  }
  return true;
}

MuonAdamW::MuonAdamW(const std::vector<Parameter>& parameters, const MuonAdamWConfig& config)
    : OptimizerGroups("muon", groups_of(parameters, config)) {}

}  // namespace tapeformer
