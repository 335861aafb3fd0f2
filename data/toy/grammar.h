#pragma once

#include <tapeformer/data/parallel_corpus.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tapeformer {

/// The parts, which share no sentence.
enum class Split { train, validation, test };

/// The built-in English to French corpus: every sentence of a synchronous grammar of 21 patterns and a few
/// hundred words, numbered from 0. Different numbers are different English sentences, each with one French
/// translation; the number decides the part, so the parts share nothing. The hard part is where the languages
/// differ: order, agreement, negation around the verb, and words whose translation depends on others.
class ToyGrammar {
 public:
  ToyGrammar();

  /// The number of sentences.
  Index size() const { return starts_.back(); }
  /// Throws:  DataError if `number` is outside [0, size)
  TextPair pair(Index number) const;
  /// A fixed 62 of 64 sentences are for training, one for validation and one for tests.
  static Split split_of(Index number);

  /// `count` distinct sentences of a part, in random order, with each pattern in its share. The same
  /// arguments give the same sample, and a longer sample starts with the shorter one.
  /// Throws:  DataError if a pattern has too few sentences in that part
  std::vector<TextPair> sample(Split split, Index count, std::uint64_t seed) const;
  /// The numbers of `count` different sentences of a part, drawn by `seed`.
  std::vector<Index> sample_numbers(Split split, Index count, std::uint64_t seed) const;

  /// The built-in text for language models, a little over a megabyte and always the same: sentences of the
  /// training part, each with its translation on the next line, then an empty line.
  std::string text() const;

  /// Translates an English sentence of this grammar as a perfect dictionary would: each word by its most
  /// frequent translation (by the grammar's own alignments), in English order, with correct elision,
  /// contraction, capitals and punctuation. A model that scores no better has learnt words, not translation.
  std::string word_by_word(const std::string& english) const;

 private:
  std::vector<Index> starts_;  // of each pattern's numbers, and the end
};

}  // namespace tapeformer
