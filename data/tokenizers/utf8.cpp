#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <utf8proc.h>

#include <algorithm>

namespace tapeformer {
namespace {

unsigned char byte_at(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

}  // namespace

Utf8Step next_utf8(std::string_view bytes) {
  const unsigned char first = byte_at(bytes, 0);
  if (first < 0x80) return {Utf8Step::whole, 1};
  if (first < 0xc2 || first > 0xf4) return {Utf8Step::invalid, 1};
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  // The second byte's range excludes overlong forms (E0, F0), surrogates (ED) and above U+10FFFF (F4).
  unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  for (std::size_t k = 1; k < length; ++k, low = 0x80, high = 0xbf) {
    if (k == bytes.size()) return {Utf8Step::unfinished, k};
    if (byte_at(bytes, k) < low || byte_at(bytes, k) > high) return {Utf8Step::invalid, k};
  }
  return {Utf8Step::whole, length};
}

std::size_t unfinished_utf8(std::string_view bytes) {
  for (std::size_t length = 1; length <= 3 && length <= bytes.size(); ++length) {
    if (next_utf8(bytes.substr(bytes.size() - length)).kind == Utf8Step::unfinished) return length;
  }
  return 0;
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = next_utf8(text.substr(i));
    if (step.kind != Utf8Step::whole) return i;
    i += step.length;
  }
  return std::string_view::npos;
}

std::size_t find_no_text(std::string_view text) { return std::min(find_invalid_utf8(text), text.find('\0')); }

std::string no_text_message(char found, Index number, const char* of) {
  const unsigned byte = static_cast<unsigned char>(found);
  // A NUL or UTF-16's byte order mark; otherwise the most common encoding.
  const char* const encoding = byte == 0 || byte >= 0xfe ? "UTF-16" : "LATIN1";
  return format("{} at byte {} of the {}: 0x{:02x}; if it is {}, try iconv -f {} -t UTF-8",
                byte == 0 ? "a NUL" : "invalid UTF-8", number, of, byte, encoding, encoding);
}

char32_t decode_code_point(std::string_view text) {
  const std::size_t length = code_point_length(text);
  if (length > text.size()) return 0xfffd;
  if (length == 1) return byte_at(text, 0);
  char32_t point = byte_at(text, 0) & (0x7fu >> length);
  for (std::size_t k = 1; k < length; ++k) point = (point << 6) | (byte_at(text, k) & 0x3fu);
  return point;
}

std::vector<std::string_view> split_code_points(std::string_view text) {
  std::vector<std::string_view> points;
  points.reserve(text.size());
  while (!text.empty()) {
    points.push_back(text.substr(0, code_point_length(text)));
    text.remove_prefix(points.back().size());
  }
  return points;
}

CharacterClass character_class(char32_t code_point) {
  if ((code_point >= 0x09 && code_point <= 0x0d) || code_point == 0x85) return CharacterClass::space;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return CharacterClass::letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return CharacterClass::number;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return CharacterClass::space;
    default: return CharacterClass::other;
  }
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
  return character_class(c) == CharacterClass::space;
}

std::vector<std::string_view> split_white_space(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = code_point_length(text.substr(i));
    if (is_white_space(decode_code_point(text.substr(i)))) {
      if (i > start) words.push_back(text.substr(start, i - start));
      start = i + length;
    }
    i += length;
  }
  if (start < text.size()) words.push_back(text.substr(start));
  return words;
}

std::string_view trim_end(std::string_view text) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = code_point_length(text.substr(i));
    if (!is_white_space(decode_code_point(text.substr(i)))) end = i + length;
    i += length;
  }
  return text.substr(0, end);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

std::string with_spaces(std::string piece) { return replaced(std::move(piece), kSentencePieceSpace, " "); }

}  // namespace tapeformer
