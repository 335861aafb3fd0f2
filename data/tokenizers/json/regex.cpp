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

struct Free {
  void operator()(pcre2_code* c) const { pcre2_code_free(c); }
  void operator()(pcre2_match_context* c) const { pcre2_match_context_free(c); }
  void operator()(pcre2_match_data* c) const { pcre2_match_data_free(c); }
};
using Code = std::unique_ptr<pcre2_code, Free>;

Code compiled(const std::string& pattern, int& error, PCRE2_SIZE& where) {
  return Code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &where, nullptr));
}

/// \p{name} or \P{name}. Without "sc:", PCRE2 gives a script the characters that it shares with others too.
std::string property(char letter, const std::string& name) {
  const std::string start = std::string("\\") + letter + "{", caret = name[0] == '^' ? "^" : "";
  const std::string script = start + caret + "sc:" + name.substr(caret.size()) + "}";
  int error = 0;
  PCRE2_SIZE where = 0;
  return compiled(script, error, where) ? script : start + name + "}";
}

/// `pattern` for PCRE2, whose \s includes U+180E and whose \w all numbers but no marks; the package's \w has
/// marks and digits, and Latin-1's other numbers outside of sets. Refuses syntax that means something else.
std::string with_classes(const std::string& pattern) {
  const std::string space = R"(\t-\r\x{85}\p{Z})", word = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})",
                    numbers = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
  std::string result;
  bool in_class = false;
  const auto refuse = [&](const std::string& what) {
    throw UnsupportedPart{"the pattern " + pattern + " with " + what};
  };
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const std::string_view rest = std::string_view(pattern).substr(i);
    if (c != '\\' || rest.size() == 1) {
      if (in_class && c == '[') refuse("a set within a set");
      if (in_class && rest.substr(0, 2) == "&&") refuse("&& in a set");
      const std::size_t flags = rest.substr(0, 2) == "(?" ? rest.find_first_not_of("imsx-", 2) : 0;
      if (rest.substr(0, flags).find('m') != rest.npos) refuse("(?m");
      const std::size_t end = rest.find_first_not_of("0123456789,", 1);
      if (!in_class && c == '{' && end != rest.npos && end > 1 && rest[end] == '}') {
        const std::string_view after = rest.substr(end + 1, 1);
        if (rest[1] == ',' || after == "+" || (after == "?" && rest.find(',') > end))
          refuse(std::string(rest.substr(0, end + 2)));
      }
      result += c;
      if (c == '[')
        for (const char first : {'^', ']'})  // a bracket at the start is one of the set
          if (pattern[i + 1] == first) result += pattern[++i];
      in_class = c == '[' || (in_class && c != ']');
      continue;
    }
    const char escaped = pattern[++i];
    if (std::strchr("bBChHvVRXKGAzZg", escaped) != nullptr) refuse(std::string("\\") + escaped);
    const bool is_space = escaped == 's' || escaped == 'S', is_word = escaped == 'w' || escaped == 'W',
               is_property = escaped == 'p' || escaped == 'P';
    const std::string& inside = is_space ? space : word;
    if (is_property || (std::strchr("xok", escaped) != nullptr && rest.substr(2, 1) == "{")) {
      const std::size_t end = rest.find('}');
      if (end == rest.npos || rest[2] != '{') refuse(std::string(rest.substr(0, 3)));
      result += is_property ? property(escaped, std::string(rest.substr(3, end - 3)))
                            : std::string(rest.substr(0, end + 1));
      i += end - 1;
    } else if (!is_space && !is_word) {
      result += {c, escaped};
    } else if (in_class) {
      if (escaped == 'S' || escaped == 'W') refuse(std::string("\\") + escaped + " in a set");
      result += inside;
    } else {
      const bool is_complement = escaped == 'S' || escaped == 'W';
      result += (is_complement ? "[^" : "[") + inside + (is_word ? numbers : "") + "]";
    }
  }
  return result;
}

struct Regex {
  explicit Regex(const std::string& written) {
    int error = 0;
    PCRE2_SIZE where = 0;
    code = compiled(with_classes(written), error, where);
    if (!code)
      throw UnsupportedPart{format("the pattern {}, which is not a regular expression ({} at byte {})",
                                   written, message_of(error), where)};
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // where it cannot, patterns are interpreted
    limits.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(limits.get(), kMostSteps);
  }

  Code code;
  std::unique_ptr<pcre2_match_context, Free> limits;
};

/// The matches and the texts between them.
std::vector<Match> matches_in(const Regex& regex, std::string_view text) {
  const std::unique_ptr<pcre2_match_data, Free> data(
      pcre2_match_data_create_from_pattern(regex.code.get(), nullptr));
  std::vector<Match> found;
  std::size_t before = 0, from = 0, last = text.npos;  // the end of the last match
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  while (!text.empty() && from <= text.size()) {
    const int result = pcre2_match(regex.code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                   data.get(), regex.limits.get());
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0)
      throw DataError("[tokenizer] the tokenizer.json's pattern gives up on this text: " +
                      message_of(result) + "; try a text with shorter words");
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    if (ends[1] == ends[0] && ends[0] == last) {  // an empty match after a match: continue behind it
      ++from;
      while (from < text.size() && (text[from] & 0xc0) == 0x80) ++from;
      continue;
    }
    if (ends[0] > before) found.push_back({text.substr(before, ends[0] - before), false});
    found.push_back({text.substr(ends[0], ends[1] - ends[0]), true});
    before = from = last = ends[1];
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
