#include <tapeformer/data/tokenizers/json/parts.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace tapeformer::tokenizer_json {
namespace {

constexpr utf8proc_ssize_t kMostParts = 32;  // of a code point; U+FDFA has 18

void append_code_point(std::string& text, std::int32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t count = utf8proc_encode_char(code_point, bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
}

/// Calls change(code point, result) for each code point.
template <class Change>
std::string changed(const std::string& text, const Change& change) {
  std::string result;
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(code_point_length(rest)))
    change(static_cast<std::int32_t>(decode_code_point(rest)), result);
  return result;
}

/// One of Unicode's normal forms. Unlike utf8proc_map(), not quadratic in the length of a run of marks.
std::string normal_form(const std::string& text, int options) {
  const auto chosen = static_cast<utf8proc_option_t>(options);
  std::vector<utf8proc_int32_t> points;
  const auto combining_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(code_point_length(rest))) {
    utf8proc_int32_t parts[kMostParts];
    int unused = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(decode_code_point(rest)), parts,
                                               kMostParts, chosen, &unused);
    points.insert(points.end(), parts, parts + count);
  }
  for (auto begin = points.begin(); begin != points.end();) {  // marks in canonical order
    const auto end = std::find_if(begin, points.end(), [&](auto c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end, [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end == points.end() ? end : std::next(end);
  }
  const auto count = static_cast<utf8proc_ssize_t>(points.size());
  points.push_back(0);  // room for the NUL that ends the result, which overwrites the code points
  const utf8proc_ssize_t bytes = utf8proc_reencode(points.data(), count, chosen);
  return {reinterpret_cast<const char*>(points.data()), static_cast<std::size_t>(bytes)};
}

Normalizer form(int options) {
  return [options](const std::string& text) { return normal_form(text, options); };
}

std::string lowercase(const std::string& text) {
  return changed(text, [](std::int32_t c, std::string& result) {
    append_code_point(result, c == 0x130 ? 'i' : utf8proc_tolower(c));
    if (c == 0x130) append_code_point(result, 0x307);  // the one letter whose lower case is two
  });
}

std::string stripped(const std::string& text, bool left, bool right) {
  const std::vector<std::string_view> characters = split_code_points(text);
  std::size_t begin = 0, end = characters.size();
  while (left && begin < end && is_space(decode_code_point(characters[begin]))) ++begin;
  while (right && end > begin && is_space(decode_code_point(characters[end - 1]))) --end;
  std::string result;
  for (std::size_t i = begin; i < end; ++i) result += characters[i];
  return result;
}

/// The control characters that BERT's tokenizer drops.
bool is_bert_control(std::int32_t c) {
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO: return c != '\t' && c != '\n' && c != '\r';
    default: return false;
  }
}

bool is_chinese(std::int32_t c) {
  constexpr std::pair<std::int32_t, std::int32_t> kRanges[] = {
      {0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df}, {0x2a700, 0x2b73f},
      {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
  for (const auto& [first, last] : kRanges)
    if (c >= first && c <= last) return true;
  return false;
}

Normalizer bert_normalizer(const Json& part) {
  const bool clean = part.value("clean_text", true), chinese = part.value("handle_chinese_chars", true);
  const bool lower = part.value("lowercase", true);
  const Json strip = part.value("strip_accents", Json());
  const bool strips = strip.is_null() ? lower : strip.get<bool>();
  return [=, marks = make_regex(R"(\p{Mn})")](const std::string& text) {
    std::string result = changed(text, [&](std::int32_t c, std::string& to) {
      if (clean && (c == 0 || c == 0xfffd || is_bert_control(c))) return;
      if (clean && is_space(static_cast<char32_t>(c))) c = ' ';
      const bool apart = chinese && is_chinese(c);
      if (apart) to += ' ';
      append_code_point(to, c);
      if (apart) to += ' ';
    });
    if (strips) result = replaced(normal_form(result, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), marks, "");
    return lower ? lowercase(result) : result;
  };
}

}  // namespace

bool is_space(char32_t c) { return is_white_space(c) && !(c >= 0x1c && c <= 0x1f); }

std::string type_of(const Json& part) { return part.is_null() ? "none" : part.value("type", "none"); }

Normalizer make_normalizer(const Json& part) {
  const std::string type = type_of(part);
  if (type == "none") return [](const std::string& text) { return text; };
  if (type == "Sequence") {
    std::vector<Normalizer> all;
    for (const Json& one : part.at("normalizers")) all.push_back(make_normalizer(one));
    return [all](std::string text) {
      for (const Normalizer& one : all) text = one(text);
      return text;
    };
  }
  if (type == "NFC") return form(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  if (type == "NFD") return form(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  if (type == "NFKC") return form(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
  if (type == "NFKD") return form(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  if (type == "Lowercase") return lowercase;
  if (type == "StripAccents") {
    return [marks = make_regex(R"(\p{M})")](const std::string& text) { return replaced(text, marks, ""); };
  }
  if (type == "Strip") {
    return [left = part.value("strip_left", true), right = part.value("strip_right", true)](
               const std::string& text) { return stripped(text, left, right); };
  }
  if (type == "Prepend") {
    return [start = part.at("prepend").get<std::string>()](const std::string& text) {
      return text.empty() ? text : start + text;
    };
  }
  if (type == "Replace") {
    return [matches = make_matcher(part.at("pattern")), content = part.at("content").get<std::string>()](
               const std::string& text) { return replaced(text, matches, content); };
  }
  if (type == "BertNormalizer") return bert_normalizer(part);
  if (type == "Precompiled") {
    const Json map = part.value("precompiled_charsmap", Json());
    return make_precompiled_normalizer(map.is_string() ? map.get<std::string>() : "");
  }
  throw UnsupportedPart{"a normalizer of type " + type};
}

}  // namespace tapeformer::tokenizer_json
