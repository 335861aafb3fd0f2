#pragma once

#include <string>
#include <string_view>

namespace tapeformer {

/// Refuses a model file on which the library of SentencePiece would read outside its memory, recurse without
/// bound or abort: it trusts some of what it reads. Its own checks are left to it.
/// Throws:  DataError naming `name`
void check_sentencepiece(std::string_view model, const std::string& name);

}  // namespace tapeformer
