#include <tapeformer/data/tokenizers/json/added.h>
#include <tapeformer/data/tokenizers/json/read_json.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <algorithm>

namespace tapeformer::tokenizer_json {
namespace {

/// The length of the last code point of `text`, which must not be empty.
std::size_t last_length(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size() && (text[text.size() - length] & 0xc0) == 0x80) ++length;
  return length;
}

/// The first code point; U+FFFD where there is none.
char32_t first_of(std::string_view text) {
  return next_utf8(text).kind == Utf8Step::whole ? decode_code_point(text) : 0xfffd;
}

/// Whether the first code point of `text` is a word character to the tokenizers package.
bool begins_with_word(std::string_view text) {
  static const Matcher kWord = make_regex(std::string("[") + kRustWord + "]");
  return next_utf8(text).kind == Utf8Step::whole &&
         kWord(text.substr(0, code_point_length(text))).front().is_match;
}

}  // namespace

AddedTokens::AddedTokens(const Json& list, const Model::Vocabulary& vocabulary, Normalizer normalize)
    : normalize_(std::move(normalize)) {
  for (const Json& entry : list) {
    AddedToken token;
    token.content = entry.at("content").get<std::string>();
    token.id = token_id(entry.at("id"));
    token.is_special = entry.value("special", false);
    token.single_word = entry.value("single_word", false);
    token.lstrip = entry.value("lstrip", false), token.rstrip = entry.value("rstrip", false);
    token.normalized = entry.value("normalized", !token.is_special);
    if (token.content.empty()) throw UnsupportedPart{"an added token without content"};
    const auto known = vocabulary.find(token.content);
    if (known != vocabulary.end() && known->second != token.id)
      throw UnsupportedPart{"the added token \"" + token.content +
                            "\" with another id than in the vocabulary"};
    token.text = token.normalized ? normalize_(token.content) : token.content;
    if (!token.text.empty()) (token.normalized ? normalized_ : raw_).push_back(tokens_.size());
    tokens_.push_back(std::move(token));
  }
  const auto is_longer = [&](std::size_t a, std::size_t b) {
    return tokens_[a].text.size() > tokens_[b].text.size();
  };
  for (std::vector<std::size_t>* wanted : {&raw_, &normalized_})
    std::stable_sort(wanted->begin(), wanted->end(), is_longer);
}

/// Divides at the leftmost token, of several that begin there the longest, and goes on behind it.
std::vector<AddedTokens::Part> AddedTokens::divided(std::string_view text,
                                                    const std::vector<std::size_t>& wanted) const {
  std::vector<Part> parts;
  std::size_t before = 0;
  bool is_beginning[256] = {};
  for (const std::size_t one : wanted) is_beginning[static_cast<unsigned char>(tokens_[one].text[0])] = true;
  for (std::size_t i = 0; i < text.size();) {
    const auto is_here = [&](std::size_t one) {
      return text.compare(i, tokens_[one].text.size(), tokens_[one].text) == 0;
    };
    const auto found = is_beginning[static_cast<unsigned char>(text[i])]
                           ? std::find_if(wanted.begin(), wanted.end(), is_here)
                           : wanted.end();
    if (found == wanted.end()) {
      ++i;
      continue;
    }
    const AddedToken& token = tokens_[*found];
    std::size_t begin = i, end = i + token.text.size();
    i = end;  // white space that one token takes may hold the next
    const auto character_before = [&] { return text.substr(begin - last_length(text.substr(0, begin))); };
    if (token.single_word) {
      const bool left = begin > 0 && begins_with_word(character_before());
      const bool right = end < text.size() && begins_with_word(text.substr(end));
      if (left || right) continue;
    }
    while (token.lstrip && begin > before && is_space(first_of(character_before())))
      begin -= last_length(text.substr(0, begin));
    while (token.rstrip && end < text.size() && is_space(first_of(text.substr(end))))
      end += code_point_length(text.substr(end));
    if (token.lstrip) begin = std::max(begin, before);
    if (begin > before) parts.push_back({text.substr(before, begin - before), nullptr});
    if (begin < end) parts.push_back({text.substr(begin, end - begin), &token});
    before = end;
  }
  if (before < text.size()) parts.push_back({text.substr(before), nullptr});
  return parts;
}

void AddedTokens::encode(std::string_view text, std::vector<std::int32_t>& ids,
                         const std::function<void(const std::string&, bool)>& rest) const {
  bool begins = true;
  for (const Part& raw : divided(text, raw_)) {
    if (raw.token != nullptr) {
      ids.push_back(raw.token->id);
    } else {
      const std::string normal = normalize_(std::string(raw.text));
      bool is_first = begins;
      for (const Part& part : divided(normal, normalized_)) {
        if (part.token != nullptr)
          ids.push_back(part.token->id);
        else
          rest(std::string(part.text), is_first);
        is_first = false;
      }
    }
    begins = false;
  }
}

}  // namespace tapeformer::tokenizer_json
