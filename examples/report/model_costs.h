#pragma once

#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <string>

namespace tapeformer {

/// What one row of as many tokens as the model can have takes, part by part: FLOPs of the forward pass, bytes
/// that are kept for the backward pass; FLOPs of both passes, and the bytes per token in the caches. Passes
/// run once for that, in training mode; the model's gradients are cleared.
std::string costs_text(DecoderOnly& model);
/// The costs with a source and a target of that length.
std::string costs_text(EncoderDecoder& model);

}  // namespace tapeformer
