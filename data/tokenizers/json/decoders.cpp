#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/json/parts.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <charconv>

namespace tapeformer::tokenizer_json {
namespace {

/// The inverse of byte_pair_characters(); a token with other characters is its own text.
std::string from_byte_characters(const std::string& token, bool) {
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
  std::uint8_t byte = 0;
  const bool is_byte = token.size() == 6 && token.compare(0, 3, "<0x") == 0 && token[5] == '>' &&
                       std::from_chars(&token[3], &token[5], byte, 16).ptr == &token[5];
  return is_byte ? std::string(1, static_cast<char>(byte)) : token;
}

Decoder metaspace_decoder(const Json& part) {
  const bool drops =
      part.value("prepend_scheme", part.value("add_prefix_space", true) ? "always" : "never") != "never";
  return [marks = make_matcher({{"String", part.at("replacement")}}), drops](const std::string& token,
                                                                             bool is_first) {
    return replaced(token, marks, is_first && drops ? "" : " ");
  };
}

/// `after_join`: the tokens are one text by then, so that only its beginning is stripped.
Decoder strip(const Json& part, bool after_join) {
  const auto content = part.at("content").get<std::string>();
  const auto start = part.at("start").get<std::size_t>(), stop = part.at("stop").get<std::size_t>();
  if (stop > 0) throw UnsupportedPart{"a decoder that strips the end of a text"};
  return [=](const std::string& token, bool is_first) {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < start && token.compare(begin, content.size(), content) == 0; ++i)
      begin += content.size();
    return is_first || !after_join ? token.substr(begin) : token;
  };
}

Decoder make_one(const Json& part, bool& is_joined) {
  const std::string type = type_of(part);
  if (type == "ByteLevel") return from_byte_characters;
  if (type == "ByteFallback") return from_byte_token;
  if (type == "Metaspace") return metaspace_decoder(part);
  if (type == "Strip") return strip(part, is_joined);
  if (type == "Replace") {
    return [matches = make_matcher(part.at("pattern")), content = part.at("content").get<std::string>()](
               const std::string& token, bool) { return replaced(token, matches, content); };
  }
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
