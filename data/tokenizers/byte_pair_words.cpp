#include <tapeformer/data/tokenizers/byte_pair_words.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <array>

namespace tapeformer {
namespace {

/// A character, or a byte that is not part of one.
struct Step {
  std::size_t length;
  CharacterClass kind;
};

Step step_at(std::string_view text, std::size_t i) {
  static const std::array<CharacterClass, 0x80> kAscii = [] {
    std::array<CharacterClass, 0x80> classes{};
    for (std::size_t c = 0; c < classes.size(); ++c) classes[c] = character_class(static_cast<char32_t>(c));
    return classes;
  }();
  const auto first = static_cast<unsigned char>(text[i]);
  if (first < 0x80) return {1, kAscii[first]};
  const std::string_view rest = text.substr(i);
  const Utf8Step step = next_utf8(rest);
  if (step.kind != Utf8Step::whole) return {step.length, CharacterClass::other};
  return {step.length, character_class(decode_code_point(rest))};
}

/// The length of the English contraction at the start of `text`, or 0.
std::size_t contraction_length(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const char second = text[1];
  if (second == 's' || second == 't' || second == 'm' || second == 'd') return 2;
  const bool three =
      text.size() > 2 && ((second == 'r' && text[2] == 'e') || (second == 'v' && text[2] == 'e') ||
                          (second == 'l' && text[2] == 'l'));
  return three ? 3 : 0;
}

/// The length of the white-space character at the end of `text`, or 0.
std::size_t space_at_end(std::string_view text) {
  for (std::size_t length = 1; length <= 3 && length <= text.size(); ++length) {
    const Step step = step_at(text, text.size() - length);
    if (step.length == length && step.kind == CharacterClass::space) return length;
  }
  return 0;
}

}  // namespace

std::size_t word_length(std::string_view text) {
  if (const std::size_t length = contraction_length(text)) return length;
  Step step = step_at(text, 0);
  std::size_t i = step.length, last = 0;
  if (text[0] == ' ' && text.size() > 1) {
    const Step next = step_at(text, 1);
    if (next.kind != CharacterClass::space) step = next, i += next.length;
  }
  for (; i < text.size(); last = i, i += step.length) {
    const Step next = step_at(text, i);
    if (next.kind != step.kind) break;
    step.length = next.length;
  }
  // The last white space before another word belongs to that word, or is a word of its own.
  const bool gives_back = step.kind == CharacterClass::space && i < text.size() && last > 0;
  return gives_back ? last : i;
}

std::size_t safe_word_cut(std::string_view text) {
  text.remove_suffix(unfinished_utf8(text));
  if (text.empty()) return 0;
  std::size_t before = 0, last = 0;  // starts of the last two words
  for (std::size_t i = 0; i < text.size(); i += word_length(text.substr(i))) before = last, last = i;
  if (contraction_length(text.substr(last)) > 0) return text.size();
  // An apostrophe and a letter may become a contraction.
  const std::string_view end = text.substr(before);
  const bool may_contract = end == "'r" || end == "'v" || end == "'l";
  const std::size_t cut = may_contract ? before : last;
  // A run of white space is one word at the end of a text, but two before a word that begins without a space.
  if (text[cut] == ' ') return cut;
  const std::size_t space = space_at_end(text.substr(0, cut));
  return space > 0 && space_at_end(text.substr(0, cut - space)) > 0 ? cut - space : cut;
}

}  // namespace tapeformer
