#pragma once

#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <string>
#include <vector>

namespace tapeformer {

/// A transformer of Marian from its model.npz, as transformers and CTranslate2 convert it: norms with an
/// epsilon of 1e-5, where Marian has 1e-6, and the sinusoids of MarianMT, whose frequencies differ slightly
/// from Marian's. Marian's decoder begins with zeros in place of a token's embedding: the model has one token
/// more on either side, the last one, whose embedding and bias are zeros, to begin with. It is in evaluation
/// mode.
/// Throws:  CheckpointError naming the file, and the array or option that is missing, damaged or not
///          implemented
EncoderDecoder load_marian(const std::string& path);

/// The opposite: writes model.npz and a decoder.yml, which names the files of the vocabularies of source and
/// target, to a folder that exists.
/// Throws:  CheckpointError naming what Marian cannot express, an embedding of the last token that is not
///          zeros included, or the file that cannot be written
void save_marian(const std::string& folder, EncoderDecoder& model,
                 const std::vector<std::string>& vocabularies = {"vocab.yml", "vocab.yml"});

}  // namespace tapeformer
