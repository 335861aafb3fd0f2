#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

namespace tapeformer {

/// The kinds for sentences that are lists of pieces: words, and characters, which concatenate to the text.
/// The space before a word belongs to its piece, which makes decoding exact. Words are cut from the text with
/// a space before it, which decoding removes, so that a word is the same piece wherever it is.
TokenizerKind word_pieces();
TokenizerKind character_pieces();
/// Words between white space, for text that another program has cut. Decoding joins them by single spaces.
TokenizerKind space_pieces();

/// A tokenizer of kind `space` with these pieces, in the order of their ids.
/// Throws:  DataError naming `name` if pieces repeat
std::unique_ptr<Tokenizer> make_space_tokenizer(std::vector<std::string> pieces, const std::string& name);

/// The name of a special id: "<pad>", "<unk>", "<begin>" or "<end>".
const char* special_piece(std::int32_t id);

/// Cuts text into words, numbers and punctuation, and calls `piece` on each from left to right. One white
/// space before a piece belongs to it. An apostrophe inside a word belongs to its shorter neighbour, or to
/// the right one if both are equally long (l'|homme, Tom|'s, I|'m).
void for_each_word(std::string_view text, const std::function<void(std::string_view)>& piece);

}  // namespace tapeformer
