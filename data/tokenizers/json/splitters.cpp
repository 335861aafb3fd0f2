#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/json/parts.h>

#include <algorithm>

namespace tapeformer::tokenizer_json {
namespace {

/// Patterns of one code point; ASCII's symbols count as punctuation.
constexpr const char *kSpace = R"(\s)", *kPunctuation = R"([!-/:-@\[-`{-~\p{P}])", *kNumeral = R"(\p{N})";
constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// The parts of a piece, none of them empty; `behavior` says what happens to the matches.
std::vector<std::string_view> divided(const std::vector<Match>& matches, const std::string& behavior) {
  std::vector<std::string_view> parts;
  bool was_match = false;
  for (const Match& match : matches) {
    const bool joins = behavior == "Contiguous"           ? match.is_match == was_match
                       : behavior == "MergedWithPrevious" ? match.is_match && !was_match
                       : behavior == "MergedWithNext"     ? !match.is_match && was_match
                                                          : false;
    if (joins && !parts.empty()) {
      parts.back() = {parts.back().data(), parts.back().size() + match.text.size()};
    } else if (behavior != "Removed" || !match.is_match) {
      parts.push_back(match.text);
    }
    was_match = match.is_match;
  }
  parts.erase(std::remove(parts.begin(), parts.end(), std::string_view()), parts.end());
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
        for (const std::string_view part : divided(found, behavior))
          result.push_back({std::string(part), piece.begins_text && part.data() == piece.text.data()});
      }
      pieces = std::move(result);
    };
  }
  throw UnsupportedPart{"a split with the behavior " + behavior};
}

/// Calls change(piece) for each piece.
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
  all.push_back(each([](Piece& piece) { piece.text = byte_pair_characters(piece.text); }));
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
    return splitter_of(make_regex(format(R"([{}]+|[^{}\s]+)", kRustWord, kRustWord)), "Removed", true);
  if (type == "WhitespaceSplit") return splitter_of(make_regex(kSpace), "Removed");
  if (type == "BertPreTokenizer")
    return in_turn(
        {splitter_of(make_regex(kSpace), "Removed"), splitter_of(make_regex(kPunctuation), "Isolated")});
  if (type == "Digits")
    return splitter_of(make_regex(kNumeral),
                       part.value("individual_digits", false) ? "Isolated" : "Contiguous");
  if (type == "Punctuation") return splitter_of(make_regex(kPunctuation), part.value("behavior", "Isolated"));
  if (type == "CharDelimiterSplit")
    return splitter_of(make_matcher({{"String", part.at("delimiter")}}), "Removed");
  throw UnsupportedPart{"a pre-tokenizer of type " + type};
}

}  // namespace tapeformer::tokenizer_json
