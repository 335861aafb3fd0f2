#pragma once

#include <tapeformer/data/tokenizers/translation_tokenizer.h>

#include <functional>

namespace tapeformer {

/// The word, space and character kinds: a list of pieces. Those of words and characters concatenate to the
/// text. Words are cut from a text that starts with a space, which decoding removes, so that a word is the
/// same piece wherever it stands. The space before a word belongs to its piece, which makes decoding exact.
/// Pieces of the kind space are joined by single spaces, whatever white space was between them.
/// Throws:  DataError if pieces repeat
std::unique_ptr<TranslationTokenizer> make_piece_tokenizer(TokenizerKind kind,
                                                           std::vector<std::string> pieces);
std::unique_ptr<TranslationTokenizer> train_piece_tokenizer(const TokenizerConfig& config,
                                                            const std::vector<std::string>& sentences);

/// The BPE and unigram kinds: a SentencePiece model, given as a model file's content, whose pieces follow our
/// special ids.
/// Throws:  DataError naming `name` if it is not a model
std::unique_ptr<TranslationTokenizer> make_subword_tokenizer(std::string model, const std::string& name);
std::unique_ptr<TranslationTokenizer> train_subword_tokenizer(const TokenizerConfig& config,
                                                              const std::vector<std::string>& sentences);

/// "<pad>", "<unk>", "<begin>", "<end>".
const char* special_piece(std::int32_t id);

/// Cuts text into words, numbers and punctuation, and calls `piece` on each from left to right. One white
/// space before a piece belongs to it. An apostrophe inside a word goes with the shorter neighbour, or the
/// right one if both are equally long (l'|homme, Tom|'s, I|'m).
void for_each_word(std::string_view text, const std::function<void(std::string_view)>& piece);

}  // namespace tapeformer
