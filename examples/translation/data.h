#pragma once

#include <tapeformer/data/batching.h>
#include <tapeformer/examples/translation/options.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace tapeformer {

/// Source and target tokenizers; the same object for a shared vocabulary.
struct Vocabularies {
  std::shared_ptr<const Tokenizer> source, target;

  /// The ids of begin, end and padding, which counts nowhere and is within either vocabulary, in a
  /// configuration that has them.
  template <class Config>
  void set_ids(Config& config) const {
    config.padding = std::min(source->padding(), target->padding()), config.begin = *target->begin(),
    config.end = *target->end();
  }
  /// True if decoders start from padding, which no output has then.
  bool starts_from_padding() const { return target->begin() == target->padding(); }

  /// Throws: DataError if a file is not the one that `config` (a run's config.json) was written with
  static Vocabularies load(const std::string& folder, const nlohmann::ordered_json& config);
  /// The fingerprints for config.json, by which load() recognises them.
  nlohmann::ordered_json description() const;
};

/// Reads and splits the corpus that `options` name; `report` tells what was read and dropped.
/// Throws: DataError
CorpusSplit load_corpus(const TranslationOptions& options, std::string& report);

/// Trains or loads the vocabularies. Throws: DataError
Vocabularies make_vocabularies(const TranslationOptions& options, const std::vector<TextPair>& train);

/// The ids of a line to translate, whose tabs count as spaces; none for a line of white space alone.
std::vector<std::int32_t> source_of_line(const Tokenizer& tokenizer, const std::string& line);

std::vector<EncodedPair> encode(const Vocabularies& vocabularies, const std::vector<TextPair>& pairs);
/// A hash of all pairs of all parts: resuming and evaluating need the same data.
std::uint64_t fingerprint(const CorpusSplit& corpus);

}  // namespace tapeformer
