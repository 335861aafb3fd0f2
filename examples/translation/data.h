#pragma once

#include <tapeformer/data/batching.h>
#include <tapeformer/data/tokenizers/transformers.h>
#include <tapeformer/examples/translation/options.h>
#include <tapeformer/nn/generation/search.h>

#include <memory>
#include <string>
#include <vector>

namespace tapeformer {

/// Source and target tokenizers, the same object for a shared vocabulary, and the frames of sentences.
struct Vocabularies {
  Vocabularies() = default;
  /// Throws: DataError for unknown languages
  Vocabularies(std::shared_ptr<const Tokenizer> of_sources, std::shared_ptr<const Tokenizer> of_targets,
               SentenceOptions asked = {})
      : source(std::move(of_sources)),
        target(std::move(of_targets)),
        sentences(std::move(asked)),
        frame(frame_of(*source, *target, sentences.languages)) {}

  std::shared_ptr<const Tokenizer> source, target;
  SentenceOptions sentences;  ///< its prefix goes before every source
  SentenceFrame frame;

  /// The ids of a sentence, without the frame.
  std::vector<std::int32_t> encode_source(const std::string& text) const {
    return source->encode(sentences.source_prefix + text);
  }
  /// The most ids of a source, without its frame, for a model of `max_length`.
  std::size_t most_source(Index max_length) const {
    return static_cast<std::size_t>(max_length - frame.source_length(0));
  }
  /// Sets the frame of a search, whose outputs never contain a begin token without an embedding.
  void set_frame(SearchConfig& search) const;

  /// The vocabularies of a run; the languages and the prefix in `asked` replace the run's own.
  /// Throws: DataError if a file is not the one described in `config`, the run's config.json
  static Vocabularies load(const std::string& folder, const nlohmann::ordered_json& config,
                           const SentenceOptions& asked = {});
  /// The fingerprints for config.json, by which load() recognises the vocabularies.
  nlohmann::ordered_json description() const;
};

/// Reads and splits the corpus that `options` name; sets `report` to a text with the numbers of pairs.
/// Throws: DataError
CorpusSplit load_corpus(const TranslationOptions& options, std::string& report);

/// As choose_by_size() of option_table.h, for the number of pairs to train on. Throws: DataError
std::string choose_by_size(TranslationOptions& options, const Command& command);

/// Trains or loads the vocabularies. Throws: DataError
Vocabularies make_vocabularies(const TranslationOptions& options, const std::vector<TextPair>& train);

/// The ids of a line to translate, in which tabs count as spaces; none for a line of white space alone.
std::vector<std::int32_t> source_of_line(const Vocabularies& words, const std::string& line);

std::vector<EncodedPair> encode(const Vocabularies& vocabularies, const std::vector<TextPair>& pairs);
/// A hash of all pairs of all parts: resuming and evaluating need the same data.
std::uint64_t fingerprint(const CorpusSplit& corpus);

}  // namespace tapeformer
