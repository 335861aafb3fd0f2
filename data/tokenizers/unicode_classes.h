#pragma once

#include <cstdint>

namespace tapeformer {

/// The classes of byte-level BPE: \p{L}, \p{N} and \s of regular expressions, and the rest.
enum class CharacterClass : std::uint8_t { other, letter, number, space };

/// The class of a code point up to U+10FFFF, as the published GPT-2 tokenizers (tiktoken, tokenizers) see it.
/// Code points that no Unicode version has assigned yet are `other`; which ones they are depends on the
/// version of utf8proc, whose tables these are: 2.8 knows Unicode 15.
CharacterClass character_class(char32_t code_point);

}  // namespace tapeformer
