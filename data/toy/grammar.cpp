#include <tapeformer/autograd/error.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <tapeformer/data/toy/grammar.h>
#include <tapeformer/data/toy/patterns.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <unordered_map>

namespace tapeformer {
namespace {

/// English words to French ones, by majority.
using Dictionary = std::unordered_map<std::string, std::string>;

toy::Sentence sentence_of(int pattern, Index number) {
  toy::Digits digits(number);
  toy::Sentence sentence;
  toy::kPatterns[static_cast<std::size_t>(pattern)].say(digits, sentence);
  return sentence;
}

std::vector<std::string> french_words(const toy::Sentence& sentence) {
  std::vector<std::string> words;
  for (const toy::FrenchWord& word : sentence.french) words.push_back(word.text);
  return words;
}

TextPair write(const toy::Sentence& sentence) {
  return {toy::write_english(sentence.english, sentence.question),
          toy::write_french(french_words(sentence), sentence.question)};
}

/// The pattern of a sentence's number and the number inside it.
std::pair<int, Index> locate(const std::vector<Index>& starts, Index number) {
  const auto next = std::upper_bound(starts.begin(), starts.end(), number);
  return {static_cast<int>(next - starts.begin()) - 1, number - *(next - 1)};
}

Dictionary estimate_dictionary(const ToyGrammar& grammar, const std::vector<Index>& starts) {
  std::unordered_map<std::string, std::map<std::string, Index>> counts;
  for (const Index number : grammar.sample_numbers(Split::train, 50000, 0)) {
    const auto [pattern, inside] = locate(starts, number);
    const toy::Sentence sentence = sentence_of(pattern, inside);
    std::vector<std::string> translations(sentence.english.size());
    for (const toy::FrenchWord& word : sentence.french) {
      if (word.link < 0) continue;
      std::string& translation = translations[static_cast<std::size_t>(word.link)];
      translation += (translation.empty() ? "" : " ") + word.text;
    }
    for (std::size_t i = 0; i < translations.size(); ++i) ++counts[sentence.english[i]][translations[i]];
  }
  Dictionary dictionary;
  for (const auto& [english, translations] : counts) {
    const auto best = std::max_element(translations.begin(), translations.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    dictionary[english] = best->first;
  }
  return dictionary;
}

}  // namespace

ToyGrammar::ToyGrammar() : starts_{0} {
  for (int pattern = 0; pattern < toy::kPatternCount; ++pattern) {
    toy::Digits digits(0);
    toy::Sentence sentence;
    toy::kPatterns[static_cast<std::size_t>(pattern)].say(digits, sentence);
    starts_.push_back(starts_.back() + digits.size());
  }
}

TextPair ToyGrammar::pair(Index number) const {
  if (number < 0 || number >= size()) {
    throw DataError("[toy_grammar] sentences are numbered in [0, " + std::to_string(size()) + "); got " +
                    std::to_string(number));
  }
  const auto [pattern, inside] = locate(starts_, number);
  return write(sentence_of(pattern, inside));
}

Split ToyGrammar::split_of(Index number) {
  const std::uint64_t share = mix_bits(static_cast<std::uint64_t>(number)) % 64;
  return share == 0 ? Split::validation : share == 1 ? Split::test : Split::train;
}

std::vector<Index> ToyGrammar::sample_numbers(Split split, Index count, std::uint64_t seed) const {
  constexpr int kRounds = 4;
  std::vector<int> wheel;  // each pattern as often as its weight
  for (int pattern = 0; pattern < toy::kPatternCount; ++pattern) {
    const auto p = static_cast<std::size_t>(pattern);
    wheel.insert(wheel.end(), static_cast<std::size_t>(toy::kPatterns[p].weight), pattern);
  }
  std::vector<Index> numbers, drawn(toy::kPatternCount);
  for (Index i = 0; i < count; ++i) {
    const std::uint64_t turn = bounded(mix_bits(~seed, static_cast<std::uint64_t>(i)), wheel.size());
    const auto p = static_cast<std::size_t>(wheel[turn]);
    const Index size = starts_[p + 1] - starts_[p];
    Index number = 0;
    do {
      if (drawn[p] == size) {
        throw DataError(std::string("[toy_grammar] the pattern \"") + toy::kPatterns[p].name +
                        "\" has too few sentences in this part for a sample of " + std::to_string(count));
      }
      number = starts_[p] + shuffled(drawn[p]++, size, mix_bits(seed, p), kRounds);
    } while (split_of(number) != split);
    numbers.push_back(number);
  }
  return numbers;
}

std::vector<TextPair> ToyGrammar::sample(Split split, Index count, std::uint64_t seed) const {
  std::vector<TextPair> pairs;
  for (const Index number : sample_numbers(split, count, seed)) pairs.push_back(pair(number));
  return pairs;
}

std::string ToyGrammar::text() const {
  constexpr Index kPairs = 12000;
  std::string text;
  for (const TextPair& pair : sample(Split::train, kPairs, 0))
    text += pair.source + "\n" + pair.target + "\n\n";
  return text;
}

std::string ToyGrammar::word_by_word(const std::string& english) const {
  static const Dictionary dictionary = estimate_dictionary(*this, starts_);
  const bool question = !english.empty() && english.back() == '?';
  std::vector<std::string> french;
  for (const std::string_view view :
       split_white_space(std::string_view(english).substr(0, english.size() - 1))) {
    std::string word(view);
    if (word != "I") word[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(word[0])));
    const auto known = dictionary.find(word == "an" ? "a" : word);
    if (known == dictionary.end()) continue;
    for (const std::string_view part : split_white_space(known->second)) french.emplace_back(part);
  }
  return toy::write_french(french, question);
}

}  // namespace tapeformer
