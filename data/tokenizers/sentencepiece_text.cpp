#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/tokenizers/sentencepiece_model.h>
#include <tapeformer/data/tokenizers/sentencepiece_text.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <algorithm>
#include <cstddef>

namespace tapeformer {
namespace {

/// Longer lines are encoded in parts: the library takes about 200 bytes of memory for each byte of text.
constexpr std::size_t kLongestPart = 1 << 16;

class SentencePieceTextTokenizer : public Tokenizer {
 public:
  SentencePieceTextTokenizer(std::string model, const std::string& name) : model_(std::move(model), name) {
    for (std::int32_t id = 0; id < model_.library().GetPieceSize(); ++id)
      bytes_.push_back(model_.text_of(id));
    // An example shows whether the model puts a space before a text.
    const std::vector<std::int32_t> example = model_.encode("a");
    adds_space_ =
        !example.empty() &&
        model_.library().IdToPiece(example[0]).compare(0, kSentencePieceSpace.size(), kSentencePieceSpace) ==
            0;
    lead_ = model_.encode("\n");
    cuts_ = keeps_white_space() && std::all_of(bytes_.begin(), bytes_.end(), [](const std::string& bytes) {
              return bytes == "\n" || bytes.find('\n') == std::string::npos;
            });
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    check_utf8(text, "SentencePiece");
    const std::size_t part = first_part(text);
    const std::vector<std::int32_t> first = model_.encode(text.substr(0, part));
    ids.insert(ids.end(), first.begin(), first.end());
    append_rest(text.substr(part), ids);
  }
  void encode_rest(std::string_view text, std::vector<std::int32_t>& ids) const override {
    check_utf8(text, "SentencePiece");
    append_rest(text, ids);
  }

  std::string bytes_of(std::int32_t id) const override {
    check_token(id, vocabulary_size());
    return bytes_[static_cast<std::size_t>(id)];
  }
  std::string decode(const std::vector<std::int32_t>& ids) const override {
    for (const std::int32_t id : ids) check_token(id, vocabulary_size());
    return model_.decode(ids);
  }
  Index vocabulary_size() const override { return static_cast<Index>(bytes_.size()); }
  std::optional<std::int32_t> begin() const override { return control(model_.library().bos_id()); }
  std::optional<std::int32_t> end() const override { return control(model_.library().eos_id()); }
  std::optional<std::int32_t> find(const std::string& token) const override {
    const std::int32_t id = model_.library().PieceToId(token);
    return model_.library().IdToPiece(id) == token ? std::optional(id) : std::nullopt;
  }
  std::size_t safe_cut(std::string_view text) const override {
    std::size_t cut = 0;
    while (cuts_ && cut < text.size()) {
      const std::string_view rest = text.substr(cut);
      const std::size_t part = first_part(rest);
      if (rest[part - 1] != '\n' && rest.size() < kLongestPart) break;
      cut += part;
    }
    return cut;
  }
  const char* kind() const override { return "sentencepiece"; }
  std::string serialize() const override { return write_tokenizer_file(kind(), model_.content()); }

  const std::string& model() const { return model_.content(); }

 private:
  static std::optional<std::int32_t> control(std::int32_t id) {
    return id < 0 ? std::nullopt : std::optional(id);
  }

  /// The length of the first part of `text`, a function of its first kLongestPart bytes.
  std::size_t first_part(std::string_view text) const {
    if (!cuts_) return text.size();
    const std::string_view head = text.substr(0, kLongestPart);
    const std::size_t line_end = head.find('\n');
    if (line_end != head.npos) return line_end + 1;
    return head.size() < kLongestPart ? head.size() : head.size() - unfinished_utf8(head);
  }

  /// Encodes each part after a line end, where the library puts no space, and drops the ids of that line end.
  /// If a longer piece has taken the line end, the part is encoded by itself.
  void append_rest(std::string_view text, std::vector<std::int32_t>& ids) const {
    std::string line;
    while (!text.empty()) {
      const std::string_view part = text.substr(0, first_part(text));
      std::vector<std::int32_t> found = model_.encode(line.assign(1, '\n').append(part));
      const auto [lead, rest] = std::mismatch(lead_.begin(), lead_.end(), found.begin(), found.end());
      if (lead == lead_.end())
        found.erase(found.begin(), rest);
      else
        found = model_.encode(part);
      ids.insert(ids.end(), found.begin(), found.end());
      text.remove_prefix(part.size());
    }
  }

  /// Whether white space is decoded as it was, judged by an example.
  bool keeps_white_space() const {
    const std::string text = "\n  a \n ";
    std::string back;
    for (const std::int32_t id : model_.encode(text)) back += bytes_of(id);
    return back == (adds_space_ ? " " : "") + text;
  }

  SentencePieceModel model_;
  std::vector<std::string> bytes_;  // by id
  bool adds_space_ = false;
  bool cuts_ = false;               // whether a text may be encoded in parts
  std::vector<std::int32_t> lead_;  // the ids of "\n", with the space before it
};

/// In bytes; longer lines count as several.
constexpr std::size_t kLongestSentence = 4192;

/// In bytes; training takes about ten times as much memory.
constexpr std::size_t kMostSentences = 32'000'000;

std::size_t memory_of(const std::string& sentence) { return sentence.size() + sizeof sentence; }

std::unique_ptr<Tokenizer> read_sentencepiece_text(std::string model, const std::string& name) {
  return std::make_unique<SentencePieceTextTokenizer>(std::move(model), name);
}

}  // namespace

std::vector<std::string> sentencepiece_sentences(const TextSource& text, std::size_t limit) {
  std::vector<std::string> kept;
  std::size_t bytes = 0, seen = 0, step = 1;
  std::string sentence;
  const auto finish = [&] {
    if (!sentence.empty() && seen++ % step == 0) {
      kept.push_back(sentence);
      bytes += memory_of(sentence);
    }
    sentence.clear();
    while (bytes > limit && kept.size() > 1) {
      step *= 2, bytes = 0;
      for (std::size_t i = 0; 2 * i < kept.size(); ++i) {
        if (i > 0) kept[i] = std::move(kept[2 * i]);
        bytes += memory_of(kept[i]);
      }
      kept.resize((kept.size() + 1) / 2);
    }
  };
  text([&](std::string_view piece) {
    check_utf8(piece, "SentencePiece", " of a piece of it");
    while (!piece.empty()) {
      const std::string_view character = piece.substr(0, code_point_length(piece));
      piece.remove_prefix(character.size());
      if (sentence.size() + character.size() > kLongestSentence) finish();
      if (character == "\n" || character == "\r" || character == "\t") {  // the trainer rejects tabs
        finish();
      } else {
        sentence += character;
      }
    }
  });
  finish();
  return kept;
}

std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(const std::string& path) {
  return read_sentencepiece_text(read_file(path), path);
}

std::unique_ptr<Tokenizer> train_sentencepiece_tokenizer(const TextSource& text, Index vocabulary_size) {
  // As in Llama's models, rare characters are spelt in bytes, and each digit is a piece.
  const std::string model = train_sentencepiece({{"model_type", "bpe"},
                                                 {"vocab_size", std::to_string(vocabulary_size)},
                                                 {"character_coverage", "0.99995"},
                                                 {"byte_fallback", "true"},
                                                 {"split_digits", "true"},
                                                 {"allow_whitespace_only_pieces", "true"}},
                                                sentencepiece_sentences(text, kMostSentences));
  return read_sentencepiece_text(model, "the trained model");
}

TokenizerKind text_sentencepiece() {
  return {"sentencepiece", "sentencepiece", train_sentencepiece_tokenizer, read_sentencepiece_text, 260};
}

std::string sentencepiece_model(const Tokenizer& tokenizer) {
  const auto* model = dynamic_cast<const SentencePieceTextTokenizer*>(&tokenizer.plain());
  if (model) return model->model();
  throw DataError(
      format("[tokenizer] only a sentencepiece tokenizer has a model; got kind {}", tokenizer.kind()));
}

}  // namespace tapeformer
