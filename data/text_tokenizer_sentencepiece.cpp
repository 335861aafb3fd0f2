#include <sentencepiece_processor.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/data/text_tokenizer_kinds.h>
#include <tapeformer/data/tokenizer_file.h>
#include <tapeformer/data/tokenizer_kinds.h>
#include <tapeformer/data/utf8.h>

namespace tapeformer {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581, as which SentencePiece writes a space

class SentencePieceTextTokenizer : public TextTokenizer {
 public:
  SentencePieceTextTokenizer(std::string model, const std::string& name) : model_(std::move(model)) {
    const auto status = processor_.LoadFromSerializedProto(model_);
    if (!status.ok()) throw DataError(name, 0, "is not a SentencePiece model: " + status.ToString());
    for (int id = 0; id < processor_.GetPieceSize(); ++id) bytes_.push_back(read_piece(id));
    // The model says by example whether it puts a space before a text.
    std::vector<std::string> pieces;
    if (processor_.Encode("a", &pieces).ok() && !pieces.empty()) {
      adds_space_ = std::string_view(pieces[0]).substr(0, kSpace.size()) == kSpace;
    }
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    const std::size_t bad = find_invalid_utf8(text);
    if (bad != std::string_view::npos) {
      throw DataError(
          "[tokenizer] the text of a SentencePiece tokenizer is UTF-8; got something else at byte " +
          std::to_string(bad));
    }
    std::vector<int> pieces;
    const auto status = processor_.Encode({text.data(), text.size()}, &pieces);
    if (!status.ok()) throw DataError("[tokenizer] " + status.ToString());
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }
  using TextTokenizer::encode;

  std::string bytes_of(std::int32_t id) const override {
    check_token(id, vocabulary_size());
    return bytes_[static_cast<std::size_t>(id)];
  }
  std::string decode(const std::vector<std::int32_t>& ids) const override {
    std::string text = TextTokenizer::decode(ids);
    if (adds_space_ && text.compare(0, 1, " ") == 0) text.erase(0, 1);
    return text;
  }
  Index vocabulary_size() const override { return static_cast<Index>(bytes_.size()); }
  std::optional<std::int32_t> begin() const override { return control(processor_.bos_id()); }
  std::optional<std::int32_t> end() const override { return control(processor_.eos_id()); }
  /// A model may add a space before a text, take spaces off its ends and merge across any place, so a part by
  /// itself has other ids than within the whole.
  std::size_t safe_cut(std::string_view) const override { return 0; }
  const char* kind() const override { return "sentencepiece"; }
  std::string serialize() const override { return write_tokenizer_file(kind(), model_); }

  const std::string& model() const { return model_; }

 private:
  static std::optional<std::int32_t> control(int id) {
    return id < 0 ? std::nullopt : std::optional<std::int32_t>(id);
  }

  std::string read_piece(int id) const {
    if (processor_.IsControl(id)) return {};
    if (processor_.IsUnknown(id)) return processor_.DecodeIds({id});  // a sign of the model's choice
    std::string piece = processor_.IdToPiece(id);
    if (processor_.IsByte(id))
      return std::string(1, static_cast<char>(std::stoi(piece.substr(3), nullptr, 16)));
    for (std::size_t i = 0; (i = piece.find(kSpace, i)) != std::string::npos; ++i) {
      piece.replace(i, kSpace.size(), " ");
    }
    return piece;
  }

  sentencepiece::SentencePieceProcessor processor_;
  std::string model_;
  std::vector<std::string> bytes_;  // by id
  bool adds_space_ = false;
};

/// The trainer leaves out sentences that are longer than this.
constexpr std::size_t kLongestSentence = 4192;

/// Lines of the text, and parts of long ones. Tabs are cut at, too: the trainer refuses them.
std::vector<std::string> sentences_of(const TextSource& text) {
  std::vector<std::string> sentences;
  std::string sentence;
  const auto finish = [&] {
    if (!sentence.empty()) sentences.push_back(std::move(sentence));
    sentence.clear();
  };
  text([&](std::string_view piece) {
    const std::size_t bad = find_invalid_utf8(piece);
    if (bad != std::string_view::npos) {
      throw DataError(
          "[tokenizer] the text of a SentencePiece tokenizer is UTF-8; got something else at byte " +
          std::to_string(bad) + " of a piece of it");
    }
    for (const std::string_view character : split_code_points(piece)) {
      if (sentence.size() + character.size() > kLongestSentence) finish();
      if (character == "\n" || character == "\r" || character == "\t") {
        finish();
      } else {
        sentence += character;
      }
    }
  });
  finish();
  return sentences;
}

}  // namespace

std::unique_ptr<TextTokenizer> parse_sentencepiece_tokenizer(std::string model, const std::string& name) {
  return std::make_unique<SentencePieceTextTokenizer>(std::move(model), name);
}

std::unique_ptr<TextTokenizer> load_sentencepiece_tokenizer(const std::string& path) {
  return parse_sentencepiece_tokenizer(read_whole_file(path), path);
}

std::unique_ptr<TextTokenizer> train_sentencepiece_tokenizer(const TextSource& text, Index vocabulary_size) {
  // As Llama's: what is rare is spelt in bytes, digits stand alone.
  const std::string model = train_sentencepiece({{"model_type", "bpe"},
                                                 {"vocab_size", std::to_string(vocabulary_size)},
                                                 {"character_coverage", "0.99995"},
                                                 {"byte_fallback", "true"},
                                                 {"split_digits", "true"},
                                                 {"allow_whitespace_only_pieces", "true"}},
                                                sentences_of(text));
  return parse_sentencepiece_tokenizer(model, "the trained model");
}

std::string sentencepiece_model(const TextTokenizer& tokenizer) {
  const auto* model = dynamic_cast<const SentencePieceTextTokenizer*>(&tokenizer);
  if (model) return model->model();
  throw DataError(std::string("[tokenizer] models are those of a sentencepiece tokenizer; got kind ") +
                  tokenizer.kind());
}

}  // namespace tapeformer
