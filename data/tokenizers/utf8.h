#pragma once

#include <tapeformer/autograd/shape.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

/// The first byte of `text` that is not valid UTF-8, or npos if there is none. Strict: overlong forms,
/// surrogates and code points above U+10FFFF are invalid.
/// Source:  The Unicode Standard 15, table 3-7
std::size_t find_invalid_utf8(std::string_view text);

/// The first byte of `text` that is invalid or NUL, or npos if there is none. NUL is valid UTF-8, but no
/// text contains it (UTF-16 looks like UTF-8 with NULs). No encoding is guessed.
std::size_t find_no_text(std::string_view text);

/// The message about the byte `found` that find_no_text found, which is number `number` from 1 on: "invalid
/// UTF-8 at byte 3 of the line: 0xe9; if it is LATIN1, try iconv -f LATIN1 -t UTF-8".
std::string no_text_message(char found, Index number, const char* of);

/// The start of bytes that may not be UTF-8. If `invalid`, `length` is that of the maximal subpart, which a
/// decoder replaces by one U+FFFD; if `unfinished`, the bytes end within a code point, and `length` is the
/// number of bytes left.
/// Source:  The Unicode Standard 15, section 3.9, "U+FFFD Substitution of Maximal Subparts"
struct Utf8Step {
  enum Kind { whole, unfinished, invalid } kind;
  std::size_t length;
};

/// The first step of `bytes`, which must not be empty.
Utf8Step next_utf8(std::string_view bytes);

/// The number of bytes at the end of `bytes` that begin a code point without finishing it, 0 to 3.
std::size_t unfinished_utf8(std::string_view bytes);

/// The length of the code point at the start of `text`, which must be valid UTF-8 and not empty.
inline std::size_t code_point_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/// The code point at the start of `text`, which must be UTF-8 and not empty. The last code point of `text`
/// may be cut off, as where a model writes byte by byte: it counts as U+FFFD.
char32_t decode_code_point(std::string_view text);

/// The code points of valid UTF-8, as views into it.
std::vector<std::string_view> split_code_points(std::string_view text);

/// The classes of byte-level BPE: \p{L}, \p{N} and \s of regular expressions, and the rest.
enum class CharacterClass : std::uint8_t { other, letter, number, space };

/// The class of a code point up to U+10FFFF, as the published GPT-2 tokenizers (tiktoken, tokenizers) see it.
/// Unassigned code points are `other`; which ones are unassigned depends on the version of utf8proc, whose
/// tables are used: 2.8 knows Unicode 15.
CharacterClass character_class(char32_t code_point);

/// Unicode white space, including no-break spaces, as in Python's str.split().
bool is_white_space(char32_t code_point);

/// The words between white space, as views into `text`.
std::vector<std::string_view> split_white_space(std::string_view text);

/// `text` without the white space at its end.
std::string_view trim_end(std::string_view text);

/// `text` with `to` in place of every `from`, which must not be empty.
std::string replaced(std::string text, std::string_view from, std::string_view to);

/// U+2581, SentencePiece's mark for a space.
constexpr std::string_view kSentencePieceSpace = "\xe2\x96\x81";

/// The text of a piece, with spaces in place of their marks.
std::string with_spaces(std::string piece);

}  // namespace tapeformer
