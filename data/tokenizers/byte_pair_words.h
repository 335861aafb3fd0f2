#pragma once

#include <string_view>

namespace tapeformer {

/// Bytes of the word at the start of `text`, which is not empty. Pairs are merged within words. Bytes that
/// are not UTF-8 count as signs, like the U+FFFD that would stand for them.
/// Math:    the first match of 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// Source:  Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.2
std::size_t word_length(std::string_view text);

/// The length of the longest head of `text`, which starts where a word does, that has the same words whatever
/// follows it and also when nothing does.
std::size_t safe_word_cut(std::string_view text);

}  // namespace tapeformer
