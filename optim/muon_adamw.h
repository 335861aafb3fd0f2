#pragma once

#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/muon.h>
#include <tapeformer/optim/optimizer_groups.h>

namespace tapeformer {

/// True for a matrix between hidden states. False for vectors and, by their names, for embeddings, tables of
/// positions or biases, the vectors that score in additive attention, and heads.
bool is_hidden_matrix(const Parameter& parameter);

struct MuonAdamWConfig : MuonConfig {
  double adam_rate = 0.1;
  AdamWConfig adamw = {0.9, 0.95, 1e-8, 0};  ///< of the other parameters

  void describe(const FieldVisitor& field) {
    MuonConfig::describe(field);
    field("adam_rate", adam_rate, "AdamW's learning rate, for all but hidden matrices, divided by Muon's",
          kNotNegative);
    field("beta1", adamw.beta1, "AdamW's decay of the first moment", kBelowOne);
    field("beta2", adamw.beta2, "AdamW's decay of the second moment", kBelowOne);
    field("adam_weight_decay", adamw.weight_decay, "AdamW's decay of tables and heads", kNotNegative);
  }
};

/// Muon for the matrices of hidden layers, and AdamW for all other parameters.
class MuonAdamW : public OptimizerGroups {
 public:
  using Config = MuonAdamWConfig;
  explicit MuonAdamW(const std::vector<Parameter>& parameters, const MuonAdamWConfig& config = {});
};

}  // namespace tapeformer
