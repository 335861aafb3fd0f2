#pragma once

#include <tapeformer/nn/formats/config_map.h>
#include <tapeformer/nn/formats/tensor_names.h>

#include <string>
#include <vector>

namespace tapeformer {

/// A family of models in a format of other programs, of which each is a DecoderOnly.
struct Family {
  const char* type;              ///< model_type in config.json
  const char* title;             ///< its name for people
  const char* architecture;      ///< the class of a model with a head
  ConfigMap::Describe describe;  ///< config.json next to our configuration: what the family expresses
  TensorNames names;
};

/// The families of transformers, each of which is a file of families/.
const std::vector<Family>& families();
/// The family of a model_type. Throws: CheckpointError that lists the types there are
const Family& family_of_type(const std::string& type);
/// "GPT-2, Llama, ... and Gemma 3": the titles of all, with `joint` before the last one.
std::string family_titles(const std::string& joint);

}  // namespace tapeformer
