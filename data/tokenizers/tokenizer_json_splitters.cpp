#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/text_tokenizer_byte_pair.h>
#include <tapeformer/data/tokenizers/tokenizer_json_parts.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <utf8proc.h>

#include <array>

namespace tapeformer::tokenizer_json {
namespace {

constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// The parts of a piece, after "behavior" in the file: what becomes of the matches.
std::vector<std::string> divided(const std::vector<Match>& matches, const std::string& behavior) {
  std::vector<std::string> parts;
  bool joins = false, was_match = false;
  for (const Match& match : matches) {
    const std::string text(match.text);
    if (behavior == "Removed") {
      if (!match.is_match) parts.push_back(text);
    } else if (behavior == "Isolated") {
      parts.push_back(text);
    } else if (behavior == "Contiguous") {
      if (!parts.empty() && was_match == match.is_match)
        parts.back() += text;
      else
        parts.push_back(text);
    } else if (behavior == "MergedWithPrevious") {
      if (match.is_match && !was_match && !parts.empty())
        parts.back() += text;
      else
        parts.push_back(text);
    } else {  // MergedWithNext
      if (joins && !match.is_match)
        parts.back() += text;
      else
        parts.push_back(text);
      joins = match.is_match;
    }
    was_match = match.is_match;
  }
  return parts;
}

Splitter splitter_of(const Matcher& matches, const std::string& behavior, bool invert = false) {
  for (const char* known : {"Removed", "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext"}) {
    if (behavior != known) continue;
    return [matches, behavior, invert](std::vector<Piece>& pieces) {
      std::vector<Piece> result;
      for (const Piece& piece : pieces) {
        std::vector<Match> found = matches(piece.text);
        for (Match& match : found) match.is_match = match.is_match != invert;
        const bool at_start = !found.empty() && (behavior != "Removed" || !found[0].is_match);
        bool begins_text = piece.begins_text && at_start;
        for (std::string& text : divided(found, behavior))
          result.push_back({std::move(text), std::exchange(begins_text, false)});
      }
      pieces = std::move(result);
    };
  }
  throw UnsupportedPart{"a split with the behavior " + behavior};
}

/// Each code point for which `holds` is a match.
template <class Holds>
Matcher characters(const Holds& holds) {
  return [holds](std::string_view text) {
    std::vector<Match> found;
    std::size_t before = 0;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t length = code_point_length(text.substr(i));
      if (holds(decode_code_point(text.substr(i)))) {
        if (i > before) found.push_back({text.substr(before, i - before), false});
        found.push_back({text.substr(i, length), true});
        before = i + length;
      }
      i += length;
    }
    if (before < text.size()) found.push_back({text.substr(before), false});
    return found;
  };
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return c > ' ' && c != 0x7f && !(c >= '0' && c <= '9') && !((c | 32) >= 'a' && (c | 32) <= 'z');
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_numeral(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

/// Calls change(piece) for each.
template <class Change>
Splitter each(const Change& change) {
  return [change](std::vector<Piece>& pieces) {
    for (Piece& piece : pieces) change(piece);
  };
}

Splitter in_turn(std::vector<Splitter> all) {
  return [all = std::move(all)](std::vector<Piece>& pieces) {
    for (const Splitter& one : all) one(pieces);
  };
}

Splitter byte_level(const Json& part) {
  std::vector<Splitter> all;
  if (part.value("add_prefix_space", true)) {
    all.push_back(each([](Piece& piece) {
      if (!piece.text.empty() && piece.text[0] != ' ') piece.text.insert(0, " ");
    }));
  }
  if (part.value("use_regex", true)) all.push_back(splitter_of(make_regex(kGpt2Pattern), "Isolated"));
  all.push_back(each([](Piece& piece) { piece.text = to_byte_characters(piece.text); }));
  return in_turn(std::move(all));
}

Splitter metaspace_splitter(const Json& part) {
  const auto mark = part.at("replacement").get<std::string>();
  const std::string scheme =
      part.value("prepend_scheme", part.value("add_prefix_space", true) ? "always" : "never");
  const bool always = scheme == "always", first = scheme == "first";
  const Splitter mark_spaces = each([=](Piece& piece) {
    std::string marked;
    for (const char c : piece.text) marked += c == ' ' ? mark : std::string(1, c);
    const bool prepends = !marked.empty() && (always || (first && piece.begins_text)) &&
                          marked.compare(0, mark.size(), mark) != 0;
    piece.text = prepends ? mark + marked : marked;
  });
  if (!part.value("split", true)) return mark_spaces;
  return in_turn({mark_spaces, splitter_of(make_matcher({{"String", mark}}), "MergedWithNext")});
}

}  // namespace

std::string to_byte_characters(std::string_view text) {
  static const std::array<std::string, 256> kCharacters = [] {
    std::array<std::string, 256> characters;
    for (std::size_t byte = 0; byte < 256; ++byte)
      characters[byte] = byte_pair_character(static_cast<unsigned char>(byte));
    return characters;
  }();
  std::string result;
  for (const char c : text) result += kCharacters[static_cast<unsigned char>(c)];
  return result;
}

Splitter make_splitter(const Json& part) {
  const std::string type = type_of(part);
  if (type == "none") return [](std::vector<Piece>&) {};
  if (type == "Sequence") {
    std::vector<Splitter> all;
    for (const Json& one : part.at("pretokenizers")) all.push_back(make_splitter(one));
    return in_turn(std::move(all));
  }
  if (type == "ByteLevel") return byte_level(part);
  if (type == "Metaspace") return metaspace_splitter(part);
  if (type == "Split")
    return splitter_of(make_matcher(part.at("pattern")), part.at("behavior").get<std::string>(),
                       part.value("invert", false));
  if (type == "Whitespace")
    return splitter_of(make_regex(R"([\w\x{200c}\x{200d}]+|[^\w\x{200c}\x{200d}\s]+)"), "Removed", true);
  if (type == "WhitespaceSplit") return splitter_of(characters(is_space), "Removed");
  if (type == "BertPreTokenizer")
    return in_turn(
        {splitter_of(characters(is_space), "Removed"), splitter_of(characters(is_punctuation), "Isolated")});
  if (type == "Digits")
    return splitter_of(characters(is_numeral),
                       part.value("individual_digits", false) ? "Isolated" : "Contiguous");
  if (type == "Punctuation")
    return splitter_of(characters(is_punctuation), part.value("behavior", "Isolated"));
  if (type == "CharDelimiterSplit")
    return splitter_of(make_matcher({{"String", part.at("delimiter")}}), "Removed");
  throw UnsupportedPart{"a pre-tokenizer of type " + type};
}

}  // namespace tapeformer::tokenizer_json
