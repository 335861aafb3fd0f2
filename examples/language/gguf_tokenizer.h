#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>
#include <tapeformer/nn/formats/gguf.h>

namespace tapeformer {

/// The metadata of a tokenizer in the GGUF file of a model with `rows` tokens, the last of which may be
/// unused: bpe, bytes and characters as "gpt2", SentencePiece's BPE as "llama", its unigram models as "t5".
/// Every GGUF tokenizer has an end token. For bytes, which have none, it is 0xff, which no text contains; for
/// characters the last one.
/// Throws:  DataError naming a feature that the format cannot express
GgufMetadata gguf_tokenizer(const Tokenizer& tokenizer, Index rows);

}  // namespace tapeformer
