#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/byte_tokenizer.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>

namespace tapeformer {
namespace {

class ByteTokenizer : public Tokenizer {
 public:
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }

  std::string bytes_of(std::int32_t id) const override {
    check_token(id, vocabulary_size());
    return std::string(1, static_cast<char>(id));
  }
  Index vocabulary_size() const override { return 256; }
  std::size_t safe_cut(std::string_view text) const override { return text.size(); }
  const char* kind() const override { return "byte"; }
  std::string serialize() const override { return write_tokenizer_file(kind(), ""); }
};

std::unique_ptr<Tokenizer> read_bytes_kind(const std::string& payload, const std::string& name) {
  if (payload.empty()) return make_byte_tokenizer();
  throw DataError(name, 0,
                  "a byte tokenizer's file holds no payload; got " + number_of(payload.size(), "byte"));
}

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

TokenizerKind text_bytes() {
  return {"byte",          "byte", [](const TextSource&, Index) { return make_byte_tokenizer(); },
          read_bytes_kind, 0,      true};
}

}  // namespace tapeformer
