#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/json/parts.h>

#include <cstring>

namespace tapeformer::tokenizer_json {
namespace {

constexpr std::uint32_t kMostSteps = 20'000'000;  // of one match

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  return pcre2_get_error_message(code, text, sizeof text) < 0 ? "unknown error"
                                                              : reinterpret_cast<const char*>(text);
}

/// `pattern` with \s and \w as in the tokenizers package: in PCRE2, U+180E is a space and marks are not part
/// of a word. Refuses other syntax that differs between the two.
std::string with_classes(const std::string& pattern) {
  const std::string space = R"(\t-\r\x{85}\p{Z})", word = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
  std::string result;
  bool in_class = false;
  const auto refuse = [&](const std::string& what) {
    throw UnsupportedPart{"the pattern " + pattern + " with " + what};
  };
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\' || i + 1 == pattern.size()) {
      if (in_class && c == '[') refuse("a set within a set");
      if (c == '(' && pattern.compare(i, 3, "(?m") == 0) refuse("(?m");
      in_class = c == '[' || (in_class && c != ']');
      result += c;
      continue;
    }
    const char escaped = pattern[++i];
    if (std::strchr("bBChHvVRXKGAzZ", escaped) != nullptr) refuse(std::string("\\") + escaped);
    const bool is_space = escaped == 's' || escaped == 'S', is_word = escaped == 'w' || escaped == 'W';
    const std::string& inside = is_space ? space : word;
    if (!is_space && !is_word) {
      result += {c, escaped};
    } else if (escaped == 's' || escaped == 'w') {
      result += in_class ? inside : "[" + inside + "]";
    } else {
      if (in_class) refuse(std::string("\\") + escaped + " in a set");
      result += "[^" + inside + "]";
    }
  }
  return result;
}

struct Regex {
  explicit Regex(const std::string& written) {
    const std::string pattern = with_classes(written);
    int error = 0;
    PCRE2_SIZE where = 0;
    code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &where, nullptr));
    if (!code)
      throw UnsupportedPart{format("the pattern {}, which is not a regular expression ({} at byte {})",
                                   written, message_of(error), where)};
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // where it cannot, patterns are interpreted
    limits.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(limits.get(), kMostSteps);
  }

  struct Free {
    void operator()(pcre2_code* c) const { pcre2_code_free(c); }
    void operator()(pcre2_match_context* c) const { pcre2_match_context_free(c); }
    void operator()(pcre2_match_data* c) const { pcre2_match_data_free(c); }
  };
  std::unique_ptr<pcre2_code, Free> code;
  std::unique_ptr<pcre2_match_context, Free> limits;
};

/// The matches and the texts between them.
std::vector<Match> matches_in(const Regex& regex, std::string_view text) {
  const std::unique_ptr<pcre2_match_data, Regex::Free> data(
      pcre2_match_data_create_from_pattern(regex.code.get(), nullptr));
  std::vector<Match> found;
  std::size_t before = 0, from = 0;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  while (from <= text.size()) {
    const int result = pcre2_match(regex.code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                   data.get(), regex.limits.get());
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0)
      throw Error("[tokenizer] the tokenizer.json's pattern gives up on this text: " + message_of(result) +
                  "; try a text with shorter words");
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    if (ends[1] == ends[0]) {  // an empty match splits, and the search continues after the next character
      from = ends[1] + 1;
      while (from < text.size() && (text[from] & 0xc0) == 0x80) ++from;
      continue;
    }
    if (ends[0] > before) found.push_back({text.substr(before, ends[0] - before), false});
    found.push_back({text.substr(ends[0], ends[1] - ends[0]), true});
    before = from = ends[1];
  }
  if (before < text.size()) found.push_back({text.substr(before), false});
  return found;
}

}  // namespace

Matcher make_regex(const std::string& pattern) {
  return [regex = std::make_shared<const Regex>(pattern)](std::string_view text) {
    return matches_in(*regex, text);
  };
}

std::string replaced(std::string_view text, const Matcher& matches, const std::string& content) {
  std::string result;
  for (const Match& match : matches(text)) result += match.is_match ? content : std::string(match.text);
  return result;
}

Matcher make_matcher(const Json& pattern) {
  if (pattern.contains("Regex")) return make_regex(pattern.at("Regex").get<std::string>());
  const std::string wanted = pattern.at("String").get<std::string>();
  if (wanted.empty()) throw UnsupportedPart{"an empty pattern"};
  return [wanted](std::string_view text) {
    std::vector<Match> found;
    for (std::size_t at; (at = text.find(wanted)) != std::string_view::npos;) {
      if (at > 0) found.push_back({text.substr(0, at), false});
      found.push_back({text.substr(at, wanted.size()), true});
      text.remove_prefix(at + wanted.size());
    }
    if (!text.empty()) found.push_back({text, false});
    return found;
  };
}

}  // namespace tapeformer::tokenizer_json
