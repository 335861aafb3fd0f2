#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/built_in_corpus.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/tokenizers/sentencepiece_sentences.h>
#include <tapeformer/data/tokenizers/text_vocabulary.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <tapeformer/examples/translation/data.h>

#include <nlohmann/json.hpp>

namespace tapeformer {
namespace {

/// Cuts a part of the built-in corpus to the number of pairs that `option` sets.
/// Throws: DataError if it has fewer pairs
void keep_first(std::vector<TextPair>& part, Index count, const char* option, Index asked) {
  if (count > static_cast<Index>(part.size())) {
    throw DataError(format(
        "[built-in corpus] it has 15000 pairs to train on and 2000 to hold out; got {} {}; try fewer, or a "
        "text of your own (--pairs). Runs that earlier versions trained on more pairs cannot continue",
        option, asked));
  }
  part.resize(static_cast<std::size_t>(count));
}

std::uint64_t fingerprint(const Tokenizer& tokenizer) { return hash_text(tokenizer.serialize()); }

}  // namespace

void Vocabularies::set_frame(SearchConfig& search) const {
  search.padding = frame.padding, search.begin = frame.begin, search.end = frame.end;
  search.source_before = frame.source_before, search.source_after = frame.source_after;
  search.forced = frame.forced;
  if (frame.begins_zero) search.never = {frame.begin};
}

Vocabularies Vocabularies::load(const std::string& folder, const nlohmann::ordered_json& config,
                                const SentenceOptions& asked) {
  const auto load_side = [&](const std::string& side) {
    const std::string path = folder + "/" + side + ".vocabulary";
    std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(sentence_tokenizers(), path);
    if (fingerprint(*tokenizer) != config.at("vocabularies").at(side).get<std::uint64_t>())
      throw DataError(path, 0, "is not the vocabulary that the weights were trained with; restore it");
    return tokenizer;
  };
  const auto source = load_side("source"), target = load_side("target");
  const auto own = [&, training = config.at("training")](const char* name) {
    return training.value(name, "");
  };
  return {source, target,
          asked.or_those_of({{own("source_language"), own("target_language")}, own("source_prefix")})};
}

nlohmann::ordered_json Vocabularies::description() const {
  return {{"source", fingerprint(*source)}, {"target", fingerprint(*target)}};
}

CorpusSplit load_corpus(const TranslationOptions& options, std::string& report) {
  CorpusSplit split;
  Index sources = 0;  // the number of sources, if some of them are held out
  if (options.built_in()) {
    split = built_in_corpus();
    const Index held_out = options.held_out > 0 ? options.held_out : kMostUnaskedHeldOut, half = held_out / 2;
    keep_first(split.train, options.grammar_pairs, "--grammar-pairs", options.grammar_pairs);
    keep_first(split.validation, half, "--held-out", held_out);
    keep_first(split.test, held_out - half, "--held-out", held_out);
    report = "built-in English to French corpus";
  } else {
    const std::string& path = options.text.name();
    std::vector<TextPair> pairs = options.text.read(options.swap);
    report = format("{}: {} pairs", path, pairs.size());
    if (options.max_words > 0)
      report = path + ": " + filter_by_words(pairs, options.max_words, path).text(options.max_words);
    if (options.validation.empty()) {
      sources = count_sources(pairs);
      split =
          split_by_source(std::move(pairs), options.sentences_held_out(sources), options.training.seed, path);
    } else {
      split.train = std::move(pairs);
      split.validation = options.validation.read(options.swap);
      if (!options.test.empty()) split.test = options.test.read(options.swap);
    }
  }
  report += format("; train {}, validation {}, test {}", split.train.size(), split.validation.size(),
                   split.test.size());
  if (const Index out = options.sentences_held_out(sources); sources > 0 && out > sources / 5)
    report += format(
        "\nnote: {} of {} source sentences are held out, more than a fifth; try a smaller "
        "--held-out, or files of your own with --validation-pairs",
        out, sources);
  return split;
}

std::string choose_by_size(TranslationOptions& options, const Command& command) {
  const Preset& preset = element_named(translation_presets(), options.preset, "--preset");
  if (preset.by_size.empty()) return {};
  std::string report;
  const auto pairs = static_cast<Index>(load_corpus(options, report).train.size());
  return choose_by_size(fields_of(options), preset, pairs, command);
}

Vocabularies make_vocabularies(const TranslationOptions& options, const std::vector<TextPair>& train) {
  const TokenizerKind& kind = tokenizer_kind(sentence_tokenizers(), options.tokenizer_kind());
  const auto make = [&](const std::string& model, bool sources, bool targets) {
    const auto read = [&](const std::function<void(std::string_view)>& reader) {
      for (const TextPair& pair : train)
        if (sources) reader(pair.source);
      for (const TextPair& pair : train)
        if (targets) reader(pair.target);
    };
    return std::shared_ptr<const Tokenizer>(model.empty()               ? kind.train(read, options.vocabulary)
                                            : is_text_vocabulary(model) ? load_text_vocabulary(model)
                                                                        : load_sentencepiece_model(model));
  };
  if (!options.model.tie_embeddings)
    return {make(options.source_model, true, false), make(options.target_model, false, true),
            options.sentences};
  const auto shared = make(options.source_model, true, true);
  return {shared, shared, options.sentences};
}

std::vector<std::int32_t> source_of_line(const Vocabularies& words, const std::string& line) {
  if (trim_end(line).empty()) return {};
  return words.encode_source(sentence_of_line(line));
}

std::vector<EncodedPair> encode(const Vocabularies& vocabularies, const std::vector<TextPair>& pairs) {
  std::vector<EncodedPair> encoded;
  for (const TextPair& pair : pairs)
    encoded.push_back({vocabularies.encode_source(pair.source), vocabularies.target->encode(pair.target)});
  return encoded;
}

std::uint64_t fingerprint(const CorpusSplit& corpus) {
  std::uint64_t hash = 0;
  for (const std::vector<TextPair>* part : {&corpus.train, &corpus.validation, &corpus.test}) {
    hash = mix_bits(hash ^ part->size());
    for (const TextPair& pair : *part) hash = mix_bits(hash ^ hash_text(pair.source), hash_text(pair.target));
  }
  return hash;
}

}  // namespace tapeformer
