#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

namespace tapeformer {

/// One token per code point that occurs, in the order of code points.
std::unique_ptr<Tokenizer> train_character_tokenizer(const TextSource& text);
TokenizerKind text_characters();

}  // namespace tapeformer
