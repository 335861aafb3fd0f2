#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/words.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/data/tokenizers/translation_tokenizer_kinds.h>
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

std::string with_leading_space(std::string_view text) { return " " + std::string(text); }

void for_each_piece(TokenizerKind kind, std::string_view text,
                    const std::function<void(std::string_view)>& piece) {
  if (text.empty()) return;
  if (kind == TokenizerKind::word) {
    for_each_word(with_leading_space(text), piece);
  } else if (kind == TokenizerKind::space) {
    for (const std::string_view between : split_white_space(text)) piece(between);
  } else {
    for (const std::string_view point : split_code_points(text)) piece(point);
  }
}

class PieceTokenizer : public TranslationTokenizer {
 public:
  PieceTokenizer(TokenizerKind kind, std::vector<std::string> pieces)
      : kind_(kind), pieces_(std::move(pieces)) {
    ids_.reserve(pieces_.size());
    for (const std::string& piece : pieces_) {
      if (!ids_.emplace(piece, kSpecialTokens + static_cast<std::int32_t>(ids_.size())).second) {
        throw DataError("[tokenizer] pieces are different from each other; got \"" + piece + "\" twice");
      }
    }
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    for_each_piece(kind_, text, [&](std::string_view piece) {
      const auto known = ids_.find(piece);
      ids.push_back(known == ids_.end() ? kUnknown : known->second);
    });
    return ids;
  }
  std::string decode(const std::vector<std::int32_t>& ids) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      check_token(id, vocabulary_size());
      if (id == kEnd) break;
      if (id == kUnknown) (text += kind_ == TokenizerKind::character ? "" : " ") += kUnknownText;
      if (id >= kSpecialTokens) (text += kind_ == TokenizerKind::space ? " " : "") += piece(id);
    }
    if (kind_ != TokenizerKind::character && text.compare(0, 1, " ") == 0) text.erase(0, 1);
    return text;
  }
  Index vocabulary_size() const override { return kSpecialTokens + static_cast<Index>(pieces_.size()); }
  std::string piece(std::int32_t id) const override {
    check_token(id, vocabulary_size());
    return id < kSpecialTokens ? special_piece(id) : pieces_[static_cast<std::size_t>(id - kSpecialTokens)];
  }
  std::string serialize() const override {
    return write_tokenizer_file(name_of(kind_), nlohmann::json(pieces_).dump(0) + "\n");
  }

 private:
  TokenizerKind kind_;
  std::vector<std::string> pieces_;
  std::unordered_map<std::string_view, std::int32_t> ids_;  // views into pieces_
};

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

std::unique_ptr<TranslationTokenizer> make_piece_tokenizer(TokenizerKind kind,
                                                           std::vector<std::string> pieces) {
  return std::make_unique<PieceTokenizer>(kind, std::move(pieces));
}

std::unique_ptr<TranslationTokenizer> train_piece_tokenizer(const TokenizerConfig& config,
                                                            const std::vector<std::string>& sentences) {
  std::unordered_map<std::string, Index> counts;
  for (const std::string& sentence : sentences) {
    for_each_piece(config.kind, sentence, [&](std::string_view piece) { ++counts[std::string(piece)]; });
  }
  std::vector<std::pair<Index, std::string>> ranked;
  for (const auto& [piece, count] : counts) {
    if (count >= config.min_count) ranked.emplace_back(-count, piece);
  }
  if (ranked.empty()) {
    throw DataError("[tokenizer] a vocabulary needs text; got " + number_of(sentences.size(), "sentence") +
                    " without a piece seen " + number_of(config.min_count, "time"));
  }
  std::sort(ranked.begin(), ranked.end());
  ranked.resize(std::min(ranked.size(), static_cast<std::size_t>(config.vocabulary_size - kSpecialTokens)));
  std::vector<std::string> pieces;
  for (auto& [count, piece] : ranked) pieces.push_back(std::move(piece));
  return make_piece_tokenizer(config.kind, std::move(pieces));
}

}  // namespace tapeformer
