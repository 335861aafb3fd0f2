#pragma once

#include <tapeformer/autograd/shape.h>

#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

/// The byte at which `text` stops being UTF-8, or npos when all of it is. Strict: overlong forms, surrogates
/// and code points above U+10FFFF are invalid.
/// Source:  The Unicode Standard 15, table 3-7
std::size_t find_invalid_utf8(std::string_view text);

/// The byte at which `text` stops being text, or npos when all of it is: where it is invalid, or has a NUL,
/// which is valid UTF-8 and in no text (UTF-16 reads as UTF-8 with NULs). Nothing else is guessed at.
std::size_t find_no_text(std::string_view text);

/// What find_no_text found, as messages say it: "invalid UTF-8 at byte 3 of the line: 0xe9". `number` counts
/// from 1.
std::string no_text_message(char found, Index number, const char* of);

/// What stands at the start of bytes that need not be UTF-8. Where `invalid`, `length` is the maximal subpart
/// that a decoder replaces by one U+FFFD; where `unfinished`, the text ends within a code point and `length`
/// is all of it.
/// Source:  The Unicode Standard 15, section 3.9, "U+FFFD Substitution of Maximal Subparts"
struct Utf8Step {
  enum Kind { whole, unfinished, invalid } kind;
  std::size_t length;
};

/// The first step of `bytes`, which are not empty.
Utf8Step next_utf8(std::string_view bytes);

/// Bytes at the end of `bytes` that begin a code point but do not finish it: 0 to 3.
std::size_t unfinished_utf8(std::string_view bytes);

/// Bytes of the code point at the start of `text`, which is valid UTF-8 and not empty.
inline std::size_t code_point_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/// The code point at the start of `text`, which is valid UTF-8 and not empty.
char32_t decode_code_point(std::string_view text);

/// The code points of valid UTF-8, as views into it.
std::vector<std::string_view> split_code_points(std::string_view text);

/// Unicode white space (no-break spaces included), as Python's str.split() has it.
bool is_white_space(char32_t code_point);

/// The runs between white space, as views into `text`.
std::vector<std::string_view> split_white_space(std::string_view text);

/// The number of runs between white space.
std::size_t count_words(std::string_view text);

/// `text` without the white space at its end.
std::string_view trim_end(std::string_view text);

}  // namespace tapeformer
