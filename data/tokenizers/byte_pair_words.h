#pragma once

#include <string_view>

namespace tapeformer {

/// The length of the word at the start of `text`, which must not be empty. Pairs are merged within words.
/// Bytes that are not UTF-8 count as punctuation, as U+FFFD does.
/// Math:    the first match of 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// Source:  Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.2
std::size_t word_length(std::string_view text);

/// The length of the longest prefix of `text` whose words do not depend on what follows, if anything.
/// `text` must start where a word starts.
std::size_t safe_word_cut(std::string_view text);

}  // namespace tapeformer
