#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>
#include <tapeformer/nn/formats/gguf.h>

namespace tapeformer {

/// The metadata of a tokenizer in the GGUF file of a model with `rows` tokens, the last of which may be
/// unused: bpe, bytes and characters as "gpt2", SentencePiece's BPE as "llama", its unigram models as "t5".
/// The "gpt2" kind needs an end token. A tokenizer without one gets its last token: the byte 0xff, which no
/// text contains, or the last character.
/// Throws:  DataError naming a feature that the format cannot express; Error for a tokenizer_json
GgufMetadata gguf_tokenizer(const Tokenizer& tokenizer, Index rows);

}  // namespace tapeformer
