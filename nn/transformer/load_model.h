#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/nn/formats/strict_json.h>
#include <tapeformer/nn/transformer/decoder_only_config.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <fstream>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

// Loads models from run folders, whose files may be damaged; to be included by sources only.
namespace tapeformer {

/// A lower bound of a model's size, without norms and feed-forward biases. In double, because the sizes in a
/// damaged configuration may have products beyond any integer.
struct LeastSize {
  double weights = 0;
  double sinusoids = 0;  ///< values in tables that are not stored
  Index layers = 0;
};
/// The least size of a model with this configuration.
LeastSize least_size(const DecoderOnlyConfig& config);
LeastSize least_size(const EncoderDecoderConfig& config);

/// Refuses a configuration far too large for its weights file before the model takes all memory. One that is
/// only a few times too large passes, so that load_weights() can name the tensors that do not fit.
/// Throws:  CheckpointError if the model is out of all proportion to the file
void check_proportion(const LeastSize& size, const SafetensorsFile& file);

/// Loads a trained model from a run folder (config.json, weights.safetensors), in evaluation mode.
/// Throws:  CheckpointError naming the folder
template <class Model>
Model load_model(const std::string& folder) {
  using Config = std::decay_t<decltype(std::declval<Model>().config())>;
  const std::string path = folder + "/config.json";
  if (!std::ifstream(path))
    throw CheckpointError(path + ": cannot be read; try the run folder of a finished run");
  const std::string text = read_text_file(path);
  try {
    const Config config = Config::from_json(text);
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
