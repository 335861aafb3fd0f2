#include <tapeformer/data/tokenizers/json/parts.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace tapeformer::tokenizer_json {
namespace {

constexpr utf8proc_ssize_t kMostParts = 32;  // of a code point; U+FDFA has 18

/// One of Unicode's normal forms. utf8proc_map() takes a time that grows as the square of a run of marks.
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
  points.push_back(0);  // room for the NUL that ends the result, which takes their place
  const utf8proc_ssize_t bytes = utf8proc_reencode(points.data(), count, chosen);
  return {reinterpret_cast<const char*>(points.data()), static_cast<std::size_t>(bytes)};
}

Normalizer form(int options) {
  return [options](const std::string& text) { return normal_form(text, options); };
}

}  // namespace

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
  if (type == "Prepend") {
    return [start = part.at("prepend").get<std::string>()](const std::string& text) {
      return text.empty() ? text : start + text;
    };
  }
  if (type == "Replace") {
    return [matches = make_matcher(part.at("pattern")), content = part.at("content").get<std::string>()](
               const std::string& text) { return replaced(text, matches, content); };
  }
  throw UnsupportedPart{"a normalizer of type " + type};
}

}  // namespace tapeformer::tokenizer_json
