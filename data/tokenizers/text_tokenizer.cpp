#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/autograd/words.h>
#include <tapeformer/data/tokenizers/text_tokenizer_kinds.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>

namespace tapeformer {

std::string TextTokenizer::decode(const std::vector<std::int32_t>& ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += bytes_of(id);
  return text;
}

std::vector<std::int32_t> TextTokenizer::ends() const {
  const std::optional<std::int32_t> id = end();
  return id ? std::vector<std::int32_t>{*id} : std::vector<std::int32_t>{};
}

std::unique_ptr<TextTokenizer> parse_text_tokenizer(std::string_view content, const std::string& name) {
  const TokenizerFile file = read_tokenizer_file(content, name);
  if (file.kind == "character") return parse_character_tokenizer(file.payload, name);
  if (file.kind == "bpe") return parse_byte_pair_tokenizer(file.payload, name);
  if (file.kind == "sentencepiece") return parse_sentencepiece_tokenizer(file.payload, name);
  if (file.kind == "tokenizer_json") return parse_tokenizer_json(file.payload, name);
  if (file.kind == kControls) return parse_controlled_tokenizer(file.payload, name);
  if (file.kind == "byte") {
    if (file.payload.empty()) return make_byte_tokenizer();
    throw DataError(
        name, 0, "a byte tokenizer's file holds no payload; got " + number_of(file.payload.size(), "byte"));
  }
  throw DataError(name, 0,
                  "is not a tokenizer of a language model: those are character, byte, bpe, sentencepiece and "
                  "tokenizer_json, this is " +
                      file.kind);
}

std::unique_ptr<TextTokenizer> load_tokenizer_json(const std::string& path) {
  return parse_tokenizer_json(read_file(path), path);
}

std::unique_ptr<TextTokenizer> load_text_tokenizer(const std::string& path) {
  return parse_text_tokenizer(read_file(path), path);
}

}  // namespace tapeformer
