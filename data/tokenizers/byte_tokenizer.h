#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

namespace tapeformer {

/// One id for each of the 256 bytes.
std::unique_ptr<Tokenizer> make_byte_tokenizer();
TokenizerKind text_bytes();

}  // namespace tapeformer
