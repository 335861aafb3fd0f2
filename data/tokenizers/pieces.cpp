#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/json/read_json.h>
#include <tapeformer/data/tokenizers/pieces.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace tapeformer {
namespace {

constexpr std::string_view kUnknownText = "\xe2\x81\x87";  // U+2047, as SentencePiece shows it

enum class Class { space, letter, apostrophe, mark };

Class class_of(char32_t c) {
  if (is_white_space(c)) return Class::space;
  if (c == '\'' || c == 0x2019) return Class::apostrophe;
  if (c < 0x80) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return letter ? Class::letter : Class::mark;
  }
  // Latin-1 signs, general punctuation, currency, arrows to dingbats, CJK punctuation
  const bool mark = (c < 0xc0 && c != 0xaa && c != 0xb5 && c != 0xba) || c == 0xd7 || c == 0xf7 ||
                    (c >= 0x2010 && c <= 0x206f) || (c >= 0x20a0 && c <= 0x2bff) ||
                    (c >= 0x3000 && c <= 0x303f);
  return mark ? Class::mark : Class::letter;
}

/// Reads a text's code points with their class from left to right.
struct Cursor {
  std::string_view text;
  std::size_t at = 0;

  bool done() const { return at == text.size(); }
  Class kind() const { return done() ? Class::space : class_of(decode_code_point(text.substr(at))); }
  void step() { at += code_point_length(text.substr(at)); }
  /// Steps over a run of letters; returns how many.
  std::size_t letters() {
    std::size_t count = 0;
    for (; !done() && kind() == Class::letter; step()) ++count;
    return count;
  }
};

using ReadPiece = std::function<void(std::string_view)>;

/// How a kind cuts a non-empty text, and joins its pieces.
struct PieceForm {
  const char* name;
  const char* before_piece;    ///< what decoding puts before a piece,
  const char* before_unknown;  ///< and before an unknown one; a space at the start of the text is removed
  void (*split)(std::string_view text, const ReadPiece& piece);
};

constexpr PieceForm kWords{"word", "", " ", [](std::string_view text, const ReadPiece& piece) {
                             for_each_word(" " + std::string(text), piece);
                           }};
constexpr PieceForm kBetweenSpaces{"space", " ", " ", [](std::string_view text, const ReadPiece& piece) {
                                     for (const std::string_view word : split_white_space(text)) piece(word);
                                   }};
constexpr PieceForm kCharacters{"character", "", "", [](std::string_view text, const ReadPiece& piece) {
                                  for (const std::string_view point : split_code_points(text)) piece(point);
                                }};

class PieceTokenizer : public Tokenizer {
 public:
  PieceTokenizer(const PieceForm& form, std::vector<std::string> pieces, const std::string& name)
      : form_(form), pieces_(std::move(pieces)) {
    ids_.reserve(pieces_.size());
    for (const std::string& piece : pieces_) {
      if (!ids_.emplace(piece, kSpecialTokens + static_cast<std::int32_t>(ids_.size())).second)
        throw DataError(name, 0, format("has the piece \"{}\" twice", piece));
    }
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    check_utf8(text, kind());
    if (text.empty()) return;
    form_.split(text, [&](std::string_view piece) {
      const auto known = ids_.find(piece);
      ids.push_back(known == ids_.end() ? kUnknown : known->second);
    });
  }
  std::string bytes_of(std::int32_t id) const override {
    check_token(id, vocabulary_size());
    if (id == kUnknown) return form_.before_unknown + std::string(kUnknownText);
    return id < kSpecialTokens ? "" : form_.before_piece + piece(id);
  }
  std::string decode(const std::vector<std::int32_t>& ids) const override {
    const std::vector<std::int32_t> before_end(ids.begin(), std::find(ids.begin(), ids.end(), kEnd));
    std::string text = Tokenizer::decode(before_end);
    if (*form_.before_unknown == ' ' && text.compare(0, 1, " ") == 0) text.erase(0, 1);
    return text;
  }
  Index vocabulary_size() const override { return kSpecialTokens + static_cast<Index>(pieces_.size()); }
  std::optional<std::int32_t> begin() const override { return kBegin; }
  std::optional<std::int32_t> end() const override { return kEnd; }
  std::string piece(std::int32_t id) const override {
    check_token(id, vocabulary_size());
    return id < kSpecialTokens ? special_piece(id) : pieces_[static_cast<std::size_t>(id - kSpecialTokens)];
  }
  const char* kind() const override { return form_.name; }
  std::string serialize() const override {
    return write_tokenizer_file(kind(), nlohmann::json(pieces_).dump(0) + "\n");
  }

 private:
  const PieceForm& form_;
  std::vector<std::string> pieces_;
  std::unordered_map<std::string_view, std::int32_t> ids_;  // views into pieces_
};

/// The most frequent pieces of the sentences.
std::unique_ptr<Tokenizer> train_pieces(const PieceForm& form, const TextSource& sentences,
                                        Index vocabulary_size) {
  if (vocabulary_size <= kSpecialTokens)
    throw DataError("[tokenizer] a vocabulary must hold more than the 4 special pieces; got a size of " +
                    std::to_string(vocabulary_size));
  std::unordered_map<std::string, Index> counts;
  sentences([&](std::string_view sentence) {
    check_utf8(sentence, form.name);
    if (!sentence.empty())
      form.split(sentence, [&](std::string_view piece) { ++counts[std::string(piece)]; });
  });
  if (counts.empty()) throw DataError("[tokenizer] a vocabulary needs text; got none");
  std::vector<std::pair<Index, std::string>> ranked;
  for (const auto& [piece, count] : counts) ranked.emplace_back(-count, piece);
  std::sort(ranked.begin(), ranked.end());
  ranked.resize(std::min(ranked.size(), static_cast<std::size_t>(vocabulary_size - kSpecialTokens)));
  std::vector<std::string> pieces;
  for (auto& [count, piece] : ranked) pieces.push_back(std::move(piece));
  return std::make_unique<PieceTokenizer>(form, std::move(pieces), "the vocabulary");
}

std::unique_ptr<Tokenizer> read_pieces(const PieceForm& form, const std::string& payload,
                                       const std::string& name) {
  auto pieces = reading_json(name, "is not a list of pieces",
                             [&] { return parse_json(payload, "it").get<std::vector<std::string>>(); });
  return std::make_unique<PieceTokenizer>(form, std::move(pieces), name);
}

TokenizerKind kind_of(const PieceForm& form) {
  return {form.name, form.name,
          [&form](const TextSource& text, Index size) { return train_pieces(form, text, size); },
          [&form](const std::string& payload, const std::string& name) {
            return read_pieces(form, payload, name);
          }};
}

}  // namespace

void for_each_word(std::string_view text, const std::function<void(std::string_view)>& piece) {
  Cursor cursor{text};
  std::size_t start = 0;
  const auto cut = [&](std::size_t end) {
    if (end > start) piece(text.substr(start, end - start));
    start = end;
  };
  while (!cursor.done()) {
    if (cursor.kind() == Class::space) {
      cursor.step();
      if (cursor.kind() == Class::space) cut(cursor.at);  // only the last of several belongs to the word
      continue;
    }
    if (cursor.kind() != Class::letter) {
      cursor.step();
      cut(cursor.at);
      continue;
    }
    std::size_t left = cursor.letters();
    while (!cursor.done() && cursor.kind() == Class::apostrophe) {
      const std::size_t apostrophe = cursor.at;
      cursor.step();
      const std::size_t after = cursor.at, right = cursor.letters();
      if (right == 0) {
        cut(apostrophe);
        cut(after);
        break;
      }
      cut(left < right ? after : apostrophe);
      left = right;
    }
    cut(cursor.at);
  }
  cut(cursor.at);
}

const char* special_piece(std::int32_t id) {
  static constexpr const char* kNames[] = {"<pad>", "<unk>", "<begin>", "<end>"};
  return kNames[id];
}

TokenizerKind word_pieces() { return kind_of(kWords); }
TokenizerKind character_pieces() { return kind_of(kCharacters); }
TokenizerKind space_pieces() { return kind_of(kBetweenSpaces); }

std::unique_ptr<Tokenizer> make_space_tokenizer(std::vector<std::string> pieces, const std::string& name) {
  return std::make_unique<PieceTokenizer>(kBetweenSpaces, std::move(pieces), name);
}

}  // namespace tapeformer
