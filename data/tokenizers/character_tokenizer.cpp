#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/character_tokenizer.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <set>

namespace tapeformer {
namespace {

/// A code point as errors show it: "é" (U+00E9), U+000A.
std::string shown(std::string_view character) {
  const char32_t point = decode_code_point(character);
  const std::string number = format("U+{:04X}", static_cast<Index>(point));
  if (point < 0x20 || (point >= 0x7f && point < 0xa0)) return number;
  return format("\"{}\" ({})", character, number);
}

class CharacterTokenizer : public Tokenizer {
 public:
  /// `characters` is valid UTF-8 with distinct code points in ascending order.
  explicit CharacterTokenizer(std::string characters) : characters_(std::move(characters)) {
    for (const std::string_view character : split_code_points(characters_)) {
      const char32_t point = decode_code_point(character);
      ids_.resize(point + 1, -1);
      ids_[point] = static_cast<std::int32_t>(starts_.size());
      starts_.push_back(static_cast<std::size_t>(character.data() - characters_.data()));
    }
    starts_.push_back(characters_.size());
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    for (std::size_t i = 0; i < text.size();) {
      const Utf8Step step = next_utf8(text.substr(i));
      if (step.kind != Utf8Step::whole) check_utf8(text, "character");
      const std::string_view character = text.substr(i, step.length);
      const char32_t point = decode_code_point(character);
      if (point >= ids_.size() || ids_[point] < 0)
        throw DataError(
            format("[tokenizer] a character tokenizer knows only the {} of its text; got {} at byte {}",
                   number_of(vocabulary_size(), "character"), shown(character), i));
      ids.push_back(ids_[point]);
      i += character.size();
    }
  }

  std::string bytes_of(std::int32_t id) const override {
    check_token(id, vocabulary_size());
    const auto i = static_cast<std::size_t>(id);
    return characters_.substr(starts_[i], starts_[i + 1] - starts_[i]);
  }
  Index vocabulary_size() const override { return static_cast<Index>(starts_.size()) - 1; }
  std::size_t safe_cut(std::string_view text) const override { return text.size() - unfinished_utf8(text); }
  const char* kind() const override { return "character"; }
  std::string serialize() const override { return write_tokenizer_file(kind(), characters_); }

 private:
  std::string characters_;
  std::vector<std::size_t> starts_;  // the start of each character, and the end
  std::vector<std::int32_t> ids_;    // by code point; -1 if it has no id
};

std::unique_ptr<Tokenizer> read_characters(const std::string& payload, const std::string& name) {
  if (payload.empty() || find_invalid_utf8(payload) != std::string_view::npos)
    throw DataError(name, 0, "is not a list of characters: it is empty or not UTF-8");
  std::string_view before;
  for (const std::string_view character : split_code_points(payload)) {
    if (character <= before)
      throw DataError(name, 0,
                      format("is not a list of characters in order: {} is out of place", shown(character)));
    before = character;
  }
  return std::make_unique<CharacterTokenizer>(payload);
}

}  // namespace

std::unique_ptr<Tokenizer> train_character_tokenizer(const TextSource& text) {
  std::vector<bool> seen(0x110000);
  std::set<std::string> characters;  // UTF-8 sorts as its code points do
  text([&](std::string_view piece) {
    check_utf8(piece, "character", " of a piece of it");
    for (const std::string_view character : split_code_points(piece)) {
      const char32_t point = decode_code_point(character);
      if (!seen[point]) seen[point] = true, characters.emplace(character);
    }
  });
  if (characters.empty()) throw DataError("[tokenizer] a character tokenizer needs text; got none");
  return std::make_unique<CharacterTokenizer>(joined(characters, ""));
}

TokenizerKind text_characters() {
  return {"character",
          "character",
          [](const TextSource& text, Index) { return train_character_tokenizer(text); },
          read_characters,
          0,
          false,
          true};
}

}  // namespace tapeformer
