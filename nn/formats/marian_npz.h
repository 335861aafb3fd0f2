#pragma once

#include <tapeformer/nn/formats/expression.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <string>

namespace tapeformer {

/// The models that Marian's model.npz can express.
const ModelFormatOf<EncoderDecoderConfig>& marian_npz_format();

/// The configuration of a transformer in Marian's model.npz, as transformers and CTranslate2 convert it:
/// norms with an epsilon of 1e-5, where Marian has 1e-6, and the sinusoids of MarianMT, whose frequencies
/// differ slightly from Marian's. Marian's decoder begins with zeros in place of a token's embedding: on
/// either side the model has one more token, the last one, with zeros for its embedding and bias.
/// Throws:  CheckpointError, here and below, naming the file, and the array or option that is missing,
///          damaged or not implemented
EncoderDecoderConfig marian_npz_config(const std::string& path);
/// The model, in evaluation mode.
EncoderDecoder load_marian_npz(const std::string& path);

/// The inverse of load_marian_npz().
/// Throws:  CheckpointError naming options that Marian cannot express, or a file that cannot be written, or
///          if the last token's embedding is not zeros
void save_marian_npz(const std::string& path, EncoderDecoder& model);

}  // namespace tapeformer
