#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/byte_pair_words.h>

#include <algorithm>
#include <queue>
#include <unordered_map>

namespace tapeformer {
namespace {

using Id = std::int32_t;
using WordCounts = std::unordered_map<std::string, Index>;

/// Counts the words. Only a piece and a word of the text are in memory at a time.
WordCounts count_words_in(const TextSource& text) {
  constexpr std::size_t kEnough = 1 << 16;  // bytes worth splitting
  WordCounts counts;
  std::string waiting;
  const auto count = [&](std::string_view words) {
    while (!words.empty()) {
      const std::size_t length = word_length(words);
      ++counts[std::string(words.substr(0, length))];
      words.remove_prefix(length);
    }
  };
  text([&](std::string_view piece) {
    waiting += piece;
    if (waiting.size() < kEnough) return;
    const std::size_t cut = safe_word_cut(waiting);
    count(std::string_view(waiting).substr(0, cut));
    waiting.erase(0, cut);
  });
  count(waiting);
  return counts;
}

using Pair = std::pair<Id, Id>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const auto parts = static_cast<std::uint64_t>(pair.first) << 32 | static_cast<std::uint32_t>(pair.second);
    return static_cast<std::size_t>(parts * 0x9e3779b97f4a7c15u);
  }
};

/// Words as sequences of tokens, and the number of times that each pair of neighbours occurs in them. A
/// merge visits only the words that contain its pair.
class PairLearner {
 public:
  PairLearner(const WordCounts& counts, BytePairVocabulary& vocabulary) : vocabulary_(vocabulary) {
    const std::array<unsigned char, 256> order = byte_pair_order();
    for (std::size_t id = 0; id < order.size(); ++id) {
      vocabulary_.bytes[order[id]] = static_cast<Id>(id);
      tokens_.emplace_back(1, static_cast<char>(order[id]));
    }
    words_.reserve(counts.size());
    for (const auto& [bytes, count] : counts) {
      Word word{{}, count};
      for (const char byte : bytes)
        word.tokens.push_back(vocabulary_.bytes[static_cast<unsigned char>(byte)]);
      for (std::size_t i = 0; i + 1 < word.tokens.size(); ++i) {
        change({word.tokens[i], word.tokens[i + 1]}, words_.size(), count);
      }
      words_.push_back(std::move(word));
    }
    for (const auto& [pair, places] : places_) queue_.push({places.count, pair});
  }

  /// Merges the most frequent pair; false if none occurs twice.
  bool merge_next() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const auto found = places_.find(best.pair);
      if (found == places_.end() || found->second.count < 2) continue;
      if (found->second.count < best.count) {
        queue_.push({found->second.count, best.pair});  // merges have used up some since it was queued
        continue;
      }
      const std::vector<std::size_t> words = std::move(found->second.words);
      places_.erase(found);
      merge(best.pair, words);
      return true;
    }
    return false;
  }

 private:
  struct Word {
    std::vector<Id> tokens;
    Index count;
  };
  struct Places {
    Index count = 0;
    std::vector<std::size_t> words;  // those that contain the pair, or once did
  };
  struct Candidate {
    Index count;
    Pair pair;
  };
  /// Orders by frequency, then lexicographically.
  struct Less {
    const std::vector<std::string>& tokens;

    const std::string& token(Id id) const { return tokens[static_cast<std::size_t>(id)]; }
    bool operator()(const Candidate& a, const Candidate& b) const {
      if (a.count != b.count) return a.count < b.count;
      const int order = token(a.pair.first).compare(token(b.pair.first));
      return order != 0 ? order < 0 : token(a.pair.second) < token(b.pair.second);
    }
  };

  void change(Pair pair, std::size_t word, Index count) {
    Places& places = places_[pair];
    places.count += count;
    if (count > 0 && (places.words.empty() || places.words.back() != word)) places.words.push_back(word);
  }

  void merge(Pair pair, const std::vector<std::size_t>& words) {
    const auto result = static_cast<Id>(tokens_.size());
    tokens_.push_back(tokens_[static_cast<std::size_t>(pair.first)] +
                      tokens_[static_cast<std::size_t>(pair.second)]);
    vocabulary_.merges.push_back({pair.first, pair.second, result});
    created_.clear();
    for (const std::size_t word : words) merge_in(word, pair, result);
    places_.erase(pair);  // overlapping occurrences, as in "aaa", may have left a count
    for (const Pair& created : created_) queue_.push({places_[created].count, created});
  }

  void merge_in(std::size_t place, Pair pair, Id result) {
    Word& word = words_[place];
    std::vector<Id>& tokens = word.tokens;
    const auto create = [&](Pair created) {
      if (places_.count(created) == 0) created_.push_back(created);
      change(created, place, word.count);
    };
    std::size_t end = 0;  // of the finished tokens
    for (std::size_t i = 0; i < tokens.size(); ++end) {
      if (i + 1 == tokens.size() || Pair{tokens[i], tokens[i + 1]} != pair) {
        tokens[end] = tokens[i++];
        continue;
      }
      if (end > 0) {
        change({tokens[end - 1], pair.first}, place, -word.count);
        create({tokens[end - 1], result});
      }
      if (i + 2 < tokens.size()) {
        change({pair.second, tokens[i + 2]}, place, -word.count);
        create({result, tokens[i + 2]});
      }
      tokens[end] = result;
      i += 2;
    }
    tokens.resize(end);
  }

  BytePairVocabulary& vocabulary_;
  std::vector<std::string> tokens_;
  std::vector<Word> words_;
  std::unordered_map<Pair, Places, PairHash> places_;
  std::vector<Pair> created_;  // pairs made by the current merge
  std::priority_queue<Candidate, std::vector<Candidate>, Less> queue_{Less{tokens_}};
};

}  // namespace

BytePairVocabulary learn_byte_pairs(const TextSource& text, Index vocabulary_size) {
  if (vocabulary_size < 257)
    throw DataError(format("[tokenizer] byte pairs need ids for 256 bytes and \"{}\"; got a vocabulary of {}",
                           kEndOfText, vocabulary_size));
  BytePairVocabulary vocabulary;
  PairLearner learner(count_words_in(text), vocabulary);
  const auto most = static_cast<std::size_t>(vocabulary_size - 257);
  while (vocabulary.merges.size() < most && learner.merge_next()) {
  }
  vocabulary.controls.emplace_back(static_cast<Id>(256 + vocabulary.merges.size()), kEndOfText);
  return vocabulary;
}

std::unique_ptr<Tokenizer> train_byte_pair_tokenizer(const TextSource& text, Index vocabulary_size) {
  return std::make_unique<BytePairTokenizer>(learn_byte_pairs(text, vocabulary_size));
}

}  // namespace tapeformer
