#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/nn/module.h>

namespace tapeformer {

/// Configuration of low-rank adapters (LoRA), which are trained while all other parameters stay.
struct AdapterConfig {
  Index rank = 0;                           ///< r of each adapter; 0 for no adapters
  double alpha = 16;                        ///< r times the scale of what an adapter adds
  std::vector<std::string> layers = {"*"};  ///< patterns of the names of linear layers, as for files

  void describe(const FieldVisitor& field);
};

/// Gives linear layers of a model adapters, freezes all other parameters, and changes nothing for a rank of
/// 0. The head gets none.
/// Math:    see Linear
/// Initial: A as the weight of a Linear, B zero, so that the outputs stay the same
/// Throws:  Error if a pattern matches no layer
/// Source:  Hu et al. 2021, arXiv:2106.09685
void add_adapters(Module& model, const AdapterConfig& config, Generator& random);

/// Copies the parameters that both models have by name; a weight with an adapter is copied with what that
/// adds.
void copy_weights(Module& from, Module& into);

/// True for the name of a parameter of an adapter.
bool is_of_adapter(const std::string& path);

/// Turns a model with adapters into one that has their changes in its weights.
template <class Model>
Model without_adapters(Model model) {
  auto config = model.config();
  if (config.adapter.rank == 0) return model;
  config.adapter = {};
  Generator random = Generator::for_loading();
  Model plain(config, random);
  const DType type = model.parameters().front().value().dtype();
  plain.to(type);
  model.compute_in(type);  // adapters change what operations read, which may be bf16 copies
  copy_weights(model, plain);
  plain.eval();
  return plain;
}

}  // namespace tapeformer
