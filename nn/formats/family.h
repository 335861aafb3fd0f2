#pragma once

#include <tapeformer/nn/formats/config_map.h>
#include <tapeformer/nn/formats/tensor_names.h>

#include <string>
#include <vector>

namespace tapeformer {

/// A family of models in another program's format, each a DecoderOnly or an EncoderDecoder.
template <class Config>
struct FamilyOf {
  const char* type;                                 ///< model_type in config.json
  const char* title;                                ///< its name for people
  const char* architecture;                         ///< the class of a model with a head
  typename ConfigMapOf<Config>::Describe describe;  ///< maps config.json to our configuration and back
  TensorNames names;
};
/// A family of language models.
using Family = FamilyOf<DecoderOnlyConfig>;
/// A family of translation models.
using TranslationFamily = FamilyOf<EncoderDecoderConfig>;

/// The families of transformers whose models have this configuration; their descriptions are in families/.
template <class Config = DecoderOnlyConfig>
const std::vector<FamilyOf<Config>>& families();
/// The family of a model_type. Throws: CheckpointError that lists the known types
template <class Config = DecoderOnlyConfig>
const FamilyOf<Config>& family_of_type(const std::string& type);
/// "GPT-2, Llama, ... or ModernBERT": the titles of all.
template <class Config = DecoderOnlyConfig>
std::string family_titles();

}  // namespace tapeformer
