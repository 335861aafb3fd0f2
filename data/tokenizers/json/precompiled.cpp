#include <tapeformer/data/tokenizers/json/parts.h>
#include <tapeformer/data/tokenizers/json/precompiled.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <utf8proc.h>

namespace tapeformer::tokenizer_json {
namespace {

std::string from_base64(const std::string& text) {
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const std::size_t digit = digits.find(c);
    if (c == '=') break;
    if (digit == std::string_view::npos) throw UnsupportedPart{"a precompiled_charsmap that is not base64"};
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if ((count += 6) >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 0xff);
  }
  return bytes;
}

std::uint32_t word_at(std::string_view bytes, std::size_t at) {
  std::uint32_t word = 0;
  for (std::size_t i = 4; i-- > 0;) word = word << 8 | static_cast<unsigned char>(bytes[at + i]);
  return word;
}

std::size_t offset(std::uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }
bool has_value(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::size_t value_of(std::uint32_t unit) { return unit & ((1u << 31) - 1); }

/// The length of the grapheme cluster at the start of `text`.
std::size_t grapheme_length(std::string_view text) {
  utf8proc_int32_t state = 0;
  std::size_t length = 0;
  while (length < text.size()) {
    const std::size_t next = code_point_length(text.substr(length));
    if (length + next >= text.size()) return text.size();
    const auto here = static_cast<utf8proc_int32_t>(decode_code_point(text.substr(length)));
    const auto after = static_cast<utf8proc_int32_t>(decode_code_point(text.substr(length + next)));
    length += next;
    if (utf8proc_grapheme_break_stateful(here, after, &state)) break;
  }
  return length;
}

}  // namespace

CharactersMap::CharactersMap(std::string_view bytes) {
  const std::size_t size = bytes.size() < 4 ? 0 : word_at(bytes, 0);
  if (size < 4 || size % 4 != 0 || size > bytes.size() - 4)
    throw UnsupportedPart{"a precompiled_charsmap whose sizes do not fit"};
  for (std::size_t at = 4; at < 4 + size; at += 4) units_.push_back(word_at(bytes, at));
  replacements_ = bytes.substr(4 + size);
  const auto begins = [&](std::size_t at) {
    return at < replacements_.size() && (replacements_[at] & 0xc0) != 0x80;
  };
  bool is_whole = !replacements_.empty() && replacements_.back() == '\0' &&
                  find_invalid_utf8(replacements_) == std::string::npos;
  for (std::size_t at = 0; is_whole && at < units_.size(); ++at) {
    const std::uint32_t unit = units_[at];
    const std::size_t next = at ^ offset(unit);  // of a NUL; other bytes change the last bits of this
    if (at > 0 && unit >> 31 != 0) continue;     // a value
    is_whole = (next | 0xff) < units_.size() && (!has_value(unit) || begins(value_of(units_[next])));
  }
  if (!is_whole) throw UnsupportedPart{"a precompiled_charsmap that is damaged"};
}

std::optional<std::string> CharactersMap::find(std::string_view text) const {
  std::size_t at = offset(units_[0]);
  for (const char c : text) {
    const auto label = static_cast<unsigned char>(c);
    if (label == 0) return {};
    at ^= label;
    const std::uint32_t unit = units_[at];
    if ((unit & (1u << 31 | 0xff)) != label) return {};
    at ^= offset(unit);
    if (has_value(unit)) return replacements_.c_str() + value_of(units_[at]);
  }
  return {};
}

Normalizer make_precompiled_normalizer(const std::string& base64) {
  if (base64.empty()) return [](const std::string& text) { return text; };
  return [map = CharactersMap(from_base64(base64))](const std::string& text) {
    std::string result;
    for (std::string_view rest = text; !rest.empty();) {
      const std::size_t length = grapheme_length(rest);
      std::string_view grapheme = rest.substr(0, length);
      rest.remove_prefix(length);
      if (grapheme.size() < 6) {
        if (const auto found = map.find(grapheme)) {
          result += *found;
          continue;
        }
      }
      for (; !grapheme.empty(); grapheme.remove_prefix(code_point_length(grapheme))) {
        const std::string_view one = grapheme.substr(0, code_point_length(grapheme));
        const auto found = map.find(one);
        result += found ? *found : std::string(one);
      }
    }
    return result;
  };
}

}  // namespace tapeformer::tokenizer_json
