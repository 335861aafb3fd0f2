#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/nn/transformer/decoder_only_config.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <fstream>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

// Models from run folders, whose files may be damaged; for sources only.
namespace tapeformer {

/// What a model is at least made of: of its weights only matrices count. In double, for the products of sizes
/// that a damaged configuration has are beyond integers.
struct LeastSize {
  double weights = 0;
  double sinusoids = 0;  ///< numbers in tables that are not stored
  Index layers = 0;
};
LeastSize least_size(const DecoderOnlyConfig& config);
LeastSize least_size(const EncoderDecoderConfig& config);

/// To be asked before such a model is made, which would take all memory. What is a few times too large
/// passes, so that load_weights() names the tensors that do not fit.
/// Throws:  CheckpointError if the model is out of all proportion to the file
void check_proportion(const LeastSize& size, const SafetensorsFile& file);

/// The trained model of a run folder (config.json, weights.safetensors), in evaluation mode.
/// Throws:  CheckpointError naming the folder
template <class Model>
Model load_model(const std::string& folder) {
  using Config = std::decay_t<decltype(std::declval<Model>().config())>;
  const std::string path = folder + "/config.json";
  std::ifstream file(path);
  if (!file) throw CheckpointError(path + ": cannot be read; try the run folder of a finished training");
  std::stringstream text;
  text << file.rdbuf();
  try {
    const Config config = Config::from_json(text.str());
    const SafetensorsFile weights = SafetensorsFile::open(folder + "/weights.safetensors");
    check_proportion(least_size(config), weights);
    Generator random(0);
    Model model(config, random);
    load_weights(weights, "", model);
    model.eval();
    return model;
  } catch (const CheckpointError& error) {
    throw CheckpointError(folder + ": " + error.what());
  }
}

}  // namespace tapeformer
