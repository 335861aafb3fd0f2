#pragma once

#include <tapeformer/data/batching.h>
#include <tapeformer/data/parallel_corpus.h>
#include <tapeformer/examples/translation_options.h>

#include <memory>
#include <string>
#include <vector>

namespace tapeformer {

/// Source and target tokenizers; the same object for a shared vocabulary.
struct Vocabularies {
  std::shared_ptr<const Tokenizer> source, target;

  /// Throws: DataError
  static Vocabularies load(const std::string& folder);
};

/// The corpus that `options` name, split; `report` says what was read and dropped.
/// Throws: DataError
CorpusSplit load_corpus(const TranslationOptions& options, std::string& report);

/// Trains or loads the vocabularies. Throws: DataError
Vocabularies make_vocabularies(const TranslationOptions& options, const std::vector<TextPair>& train);

/// The ids of a line to translate; none for a line without text.
/// Throws: DataError naming the line if it is not UTF-8 or has more than max_length - 1 tokens
std::vector<std::int32_t> checked_source(const Tokenizer& tokenizer, const std::string& line, Index number,
                                         Index max_length);

std::vector<EncodedPair> encode(const Vocabularies& vocabularies, const std::vector<TextPair>& pairs);
/// A number that changes when any pair does: a resumed run must see the same data.
std::uint64_t fingerprint(const std::vector<EncodedPair>& pairs);

std::vector<std::string> sources_of(const std::vector<TextPair>& pairs);
std::vector<std::string> targets_of(const std::vector<TextPair>& pairs);

}  // namespace tapeformer
