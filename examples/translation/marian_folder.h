#pragma once

#include <tapeformer/examples/translation/run.h>

namespace tapeformer {

/// True for a folder of Marian: decoder.yml, or model.npz.decoder.yml, with the model and the vocabularies
/// that it names.
bool is_marian_folder(const std::string& folder);
/// The model's configuration. Throws: as load_marian_folder()
EncoderDecoderConfig marian_folder_config(const std::string& folder);
/// The model, its vocabularies and the search of decoder.yml: at every step any of the best beam-size
/// candidates may end, and the search stops when beam-size outputs are found.
/// Throws:  CheckpointError, DataError naming the file, and an unsupported option
TranslationRun load_marian_folder(const std::string& folder, const SentenceOptions& sentences = {});

/// The content of a decoder.yml for model.npz and vocabularies of these names.
std::string marian_decoder_yml(const std::vector<std::string>& vocabularies);

}  // namespace tapeformer
