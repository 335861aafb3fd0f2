#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/nn/formats/safetensors_folder.h>
#include <tapeformer/nn/formats/strict_json.h>

#include <fstream>
#include <functional>
#include <optional>

// Models in run folders and in those of other programs, whose files may be damaged; for sources only.
namespace tapeformer {

/// A model's configuration for the config.json of a run folder.
std::string config_text(const char* model, const FieldList& fields);

/// Reads fields; one that the file lacks keeps its value. `check` checks the whole. Programs may keep further
/// fields in the file.
/// Throws: CheckpointError naming the mistake
void read_config_text(const char* model, const std::string& text, FieldList&& fields,
                      const std::function<void()>& check);

/// The memory of a model that is not out of proportion to this many values in its files: four times as much
/// in double, and a GiB.
inline double bytes_in_proportion(double values) { return (1 << 30) + 4 * sizeof(double) * values; }

/// Calls make(), which makes the model of a configuration with these fields, but refuses one far too large
/// for its weights files before it takes all memory. One only a few times too large passes, so that a
/// comparison can name the tensors that do not fit.
/// Throws:  CheckpointError if the model is out of proportion to the files
void make_in_proportion(const FieldList& fields, const SafetensorsFolder& files,
                        const std::function<void()>& make);
/// As above, for a Model, which is returned without its weights.
template <class Model, class Config>
Model made_in_proportion(const Config& config, const SafetensorsFolder& files) {
  std::optional<Model> model;
  make_in_proportion(fields_of(config), files, [&] {
    Generator random = Generator::for_loading();
    model.emplace(config, random);
  });
  return std::move(*model);
}

/// load_weights() for a run folder, whose message on a mismatch suggests another config.json.
void load_own_weights(const SafetensorsFile& file, Module& module);

/// Loads a trained model from a run folder (config.json, weights.safetensors), in evaluation mode.
/// Throws:  CheckpointError naming the folder
template <class Model>
Model load_model(const std::string& folder) {
  using Config = std::decay_t<decltype(std::declval<Model>().config())>;
  const std::string path = folder + "/config.json";
  if (!std::ifstream(path))
    throw CheckpointError(path + ": cannot be read; try the run folder of a finished run");
  const std::string text = read_file<CheckpointError>(path);
  return naming(folder, [&] {
    const Config config = Config::from_json(text);
    const SafetensorsFile weights = SafetensorsFile::open(folder + "/weights.safetensors");
    Model model = made_in_proportion<Model>(config, SafetensorsFolder(weights));
    load_own_weights(weights, model);
    model.eval();
    return model;
  });
}

}  // namespace tapeformer
