#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/json/parts.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <cctype>

namespace tapeformer::tokenizer_json {
namespace {

/// The inverse of byte_pair_characters(); a token with other characters is its own text.
std::string from_byte_characters(const std::string& token) {
  static const std::unordered_map<std::string, char> kBytes = [] {
    std::unordered_map<std::string, char> bytes;
    for (int byte = 0; byte < 256; ++byte)
      bytes.emplace(byte_pair_characters(std::string(1, static_cast<char>(byte))), static_cast<char>(byte));
    return bytes;
  }();
  std::string result;
  for (const std::string_view character : split_code_points(token)) {
    const auto byte = kBytes.find(std::string(character));
    if (byte == kBytes.end()) return token;
    result += byte->second;
  }
  return result;
}

std::string from_byte_token(const std::string& token, bool) {
  const auto is_digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return token;
  if (!is_digit(token[3]) || !is_digit(token[4])) return token;
  return std::string(1, static_cast<char>(std::stoi(token.substr(3, 2), nullptr, 16)));
}

Decoder word_piece(const Json& part) {
  const bool cleans = part.value("cleanup", true);
  return [prefix = part.value("prefix", std::string("##")), cleans](const std::string& token, bool is_first) {
    std::string text = token;
    if (!is_first)
      text = text.compare(0, prefix.size(), prefix) == 0 ? text.substr(prefix.size()) : " " + text;
    if (!cleans) return text;
    for (const auto& [from, to] : {std::pair(" .", "."),
                                   {" ?", "?"},
                                   {" !", "!"},
                                   {" ,", ","},
                                   {" ' ", "'"},
                                   {" n't", "n't"},
                                   {" 'm", "'m"},
                                   {" do not", " don't"},
                                   {" 's", "'s"},
                                   {" 've", "'ve"},
                                   {" 're", "'re"}})
      text = tapeformer::replaced(text, from, to);
    return text;
  };
}

Decoder metaspace_decoder(const Json& part) {
  const bool drops =
      part.value("prepend_scheme", part.value("add_prefix_space", true) ? "always" : "never") != "never";
  return [mark = make_matcher({{"String", part.at("replacement")}}), drops](const std::string& token,
                                                                            bool is_first) {
    return replaced(token, mark, is_first && drops ? "" : " ");
  };
}

/// With `after_join` the tokens are already joined, so only the start of the text is stripped.
Decoder strip(const Json& part, bool after_join) {
  const auto content = part.at("content").get<std::string>();
  const auto start = part.at("start").get<std::size_t>(), stop = part.at("stop").get<std::size_t>();
  if (stop > 0) throw UnsupportedPart{"a decoder that strips the end of a text"};
  if (content.empty()) throw UnsupportedPart{"an empty pattern"};
  return [=](const std::string& token, bool is_first) {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < start && token.compare(begin, content.size(), content) == 0; ++i)
      begin += content.size();
    return is_first || !after_join ? token.substr(begin) : token;
  };
}

Decoder make_one(const Json& part, bool& is_joined) {
  const std::string type = type_of(part);
  if (is_joined && type != "Strip" && type != "Replace" && type != "Fuse")
    throw UnsupportedPart{"a decoder of type " + type + " after one that joins tokens"};
  if (type == "ByteLevel") {
    is_joined = true;
    return [](const std::string& token, bool) { return from_byte_characters(token); };
  }
  if (type == "ByteFallback") return from_byte_token;
  if (type == "Metaspace") return metaspace_decoder(part);
  if (type == "WordPiece") return word_piece(part);
  if (type == "Strip") return strip(part, is_joined);
  if (type == "Replace")
    return [change = make_normalizer(part)](const std::string& token, bool) { return change(token); };
  if (type == "Fuse") {
    is_joined = true;
    return [](const std::string& token, bool) { return token; };
  }
  throw UnsupportedPart{"a decoder of type " + type};
}

}  // namespace

Decoder make_decoder(const Json& part) {
  if (part.is_null())
    return [](const std::string& token, bool is_first) { return is_first ? token : " " + token; };
  bool is_joined = false;
  if (type_of(part) != "Sequence") return make_one(part, is_joined);
  std::vector<Decoder> all;
  for (const Json& one : part.at("decoders")) all.push_back(make_one(one, is_joined));
  return [all](std::string text, bool is_first) {
    for (const Decoder& one : all) text = one(text, is_first);
    return text;
  };
}

}  // namespace tapeformer::tokenizer_json
