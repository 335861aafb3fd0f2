#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/protocol_buffer.h>
#include <tapeformer/data/tokenizers/sentencepiece_text.h>
#include <tapeformer/data/tokenizers/tokenizer_controls.h>
#include <tapeformer/examples/language/gguf_tokenizer.h>

#include <cstring>
#include <iterator>
#include <set>
#include <sstream>

namespace tapeformer {
namespace {

enum TokenType : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5 };

/// The vocabulary of every kind of tokenizer.
struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;

  void add(const std::string& token, std::int32_t type) {
    tokens.push_back(token);
    types.push_back(type);
  }
  /// Fills the vocabulary up to `rows`: with the tokens that were added to the tokenizer, and unused ones.
  void fill_up(Index rows, const Tokenizer& tokenizer) {
    while (static_cast<Index>(tokens.size()) < rows) add(format("[PAD{}]", tokens.size()), kUnused);
    for (const tokenizer_json::AddedToken& token : added_tokens(tokenizer)) {
      tokens.at(static_cast<std::size_t>(token.id)) = token.content;
      types.at(static_cast<std::size_t>(token.id)) = token.is_special ? kControl : kUserDefined;
    }
  }
};

void add_id(GgufMetadata& metadata, const char* key, std::optional<std::int32_t> id) {
  if (id) metadata.emplace_back(key, static_cast<std::uint32_t>(*id));
}

/// Adds the tokens with which texts begin and end; the format has names for three ends, of a text, a turn and
/// a message, at each of which a generated text ends.
void add_controls(GgufMetadata& metadata, std::optional<std::int32_t> begin,
                  const std::vector<std::int32_t>& ends, bool adds_begin) {
  constexpr const char* kNames[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                    "tokenizer.ggml.eom_token_id"};
  if (ends.size() > std::size(kNames))
    throw DataError(
        format("[tokenizer] GGUF can express 3 end tokens; got {}; try fewer in "
               "generation_config.json's eos_token_id",
               ends.size()));
  add_id(metadata, "tokenizer.ggml.bos_token_id", begin);
  for (std::size_t i = 0; i < ends.size(); ++i) add_id(metadata, kNames[i], ends[i]);
  metadata.emplace_back("tokenizer.ggml.add_bos_token", adds_begin);
}

/// Merges that make every character of more than one byte, from its first byte on. They apply to nothing
/// else, because the first byte of a character never occurs within another.
std::vector<std::string> merges_of_characters(const Tokenizer& tokenizer) {
  std::vector<std::string> merges;
  std::set<std::string> seen;
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string bytes = tokenizer.bytes_of(id);
    for (std::size_t i = 1; i < bytes.size(); ++i) {
      const std::string merge =
          byte_pair_characters(bytes.substr(0, i)) + " " + byte_pair_characters(bytes.substr(i, 1));
      if (seen.insert(merge).second) merges.push_back(merge);
    }
  }
  return merges;
}

GgufMetadata byte_level(const Tokenizer& tokenizer, Index rows) {
  const std::string kind = tokenizer.kind();
  const Tokenizer& plain = tokenizer.plain();
  Vocabulary vocabulary;
  for (std::int32_t id = 0; id < plain.vocabulary_size(); ++id) {
    const std::string bytes = plain.bytes_of(id);
    vocabulary.add(kind == "bpe" ? plain.piece(id) : byte_pair_characters(bytes),
                   bytes.empty() ? kControl : kNormal);
  }
  vocabulary.fill_up(rows, tokenizer);
  std::vector<std::string> merges;
  if (kind == "bpe") {
    std::istringstream lines(byte_pair_files(tokenizer).merges);
    std::string line;
    std::getline(lines, line);  // the version
    while (std::getline(lines, line)) merges.push_back(line);
  } else if (kind == "character") {
    merges = merges_of_characters(plain);
  }
  std::vector<std::int32_t> ends = tokenizer.ends();
  if (ends.empty()) ends = {static_cast<std::int32_t>(tokenizer.vocabulary_size()) - 1};
  GgufMetadata metadata{{"tokenizer.ggml.model", std::string("gpt2")},
                        {"tokenizer.ggml.pre", std::string("gpt-2")},
                        {"tokenizer.ggml.tokens", vocabulary.tokens},
                        {"tokenizer.ggml.token_type", vocabulary.types},
                        {"tokenizer.ggml.merges", merges}};
  const std::optional<std::int32_t> begin = tokenizer.begin();
  add_controls(metadata, begin.value_or(ends[0]), ends, begin.has_value());
  return metadata;
}

/// The contents of a SentencePiece model file. The numbers of fields, and of the types of pieces, which GGUF
/// has too, are those of sentencepiece_model.proto.
struct SentencePieces {
  Vocabulary vocabulary;
  std::vector<float> scores;
  enum { kUnigram = 1, kBpe = 2 };
  std::uint64_t kind = kUnigram;
  std::string rules;
  bool adds_space = true, drops_space = true, escapes_space = true;
  std::optional<std::int32_t> unknown;

  explicit SentencePieces(const std::string& model) {
    for (ProtocolBufferFields field(model); field.next();) {
      if (field.number == 1) read_piece(field.content);
      if (field.number == 2) {
        for (ProtocolBufferFields of(field.content); of.next();)
          if (of.number == 3) kind = of.value;
      }
      if (field.number == 3) read_normalizer(field.content);
    }
  }

 private:
  void read_piece(std::string_view bytes) {
    std::string piece;
    float score = 0;
    std::int32_t type = kNormal;
    for (ProtocolBufferFields of(bytes); of.next();) {
      if (of.number == 1) piece = of.content;
      if (of.number == 2 && of.content.size() == sizeof score)
        std::memcpy(&score, of.content.data(), sizeof score);
      if (of.number == 3) type = static_cast<std::int32_t>(of.value);
    }
    if (type == kUnknown) unknown = static_cast<std::int32_t>(scores.size());
    vocabulary.add(piece, type);
    scores.push_back(score);
  }

  void read_normalizer(std::string_view bytes) {
    for (ProtocolBufferFields of(bytes); of.next();) {
      if (of.number == 2) rules = of.content;
      if (of.number == 3) adds_space = of.value != 0;
      if (of.number == 4) drops_space = of.value != 0;
      if (of.number == 5) escapes_space = of.value != 0;
    }
  }
};

GgufMetadata sentence_pieces(const Tokenizer& tokenizer, Index rows) {
  SentencePieces pieces(sentencepiece_model(tokenizer));
  const bool is_unigram = pieces.kind == SentencePieces::kUnigram;
  const auto refuse = [](const std::string& what) {
    throw DataError("[tokenizer] GGUF cannot express a SentencePiece model with " + what);
  };
  if (!is_unigram && pieces.kind != SentencePieces::kBpe) refuse("words or characters as its pieces");
  if (!pieces.escapes_space) refuse("escape_whitespaces=false");
  if (!is_unigram && !pieces.rules.empty()) refuse("BPE and rules of normalisation");
  if (!is_unigram && pieces.drops_space) refuse("BPE and remove_extra_whitespaces=true");
  pieces.vocabulary.fill_up(rows, tokenizer);
  pieces.scores.resize(pieces.vocabulary.tokens.size());
  GgufMetadata metadata{{"tokenizer.ggml.model", std::string(is_unigram ? "t5" : "llama")},
                        {"tokenizer.ggml.pre", std::string("default")},
                        {"tokenizer.ggml.tokens", pieces.vocabulary.tokens},
                        {"tokenizer.ggml.scores", pieces.scores},
                        {"tokenizer.ggml.token_type", pieces.vocabulary.types}};
  add_controls(metadata, tokenizer.begin(), tokenizer.ends(), tokenizer.begin().has_value());
  add_id(metadata, "tokenizer.ggml.unknown_token_id", pieces.unknown);
  metadata.emplace_back("tokenizer.ggml.add_eos_token", false);
  metadata.emplace_back("tokenizer.ggml.add_space_prefix", pieces.adds_space);
  metadata.emplace_back("tokenizer.ggml.remove_extra_whitespaces", pieces.drops_space);
  if (!pieces.rules.empty()) {
    metadata.emplace_back("tokenizer.ggml.precompiled_charsmap",
                          std::vector<std::uint8_t>(pieces.rules.begin(), pieces.rules.end()));
  }
  return metadata;
}

}  // namespace

GgufMetadata gguf_tokenizer(const Tokenizer& tokenizer, Index rows) {
  if (tokenizer.kind() == std::string("tokenizer_json"))
    throw Error(
        "export --format gguf cannot write a tokenizer.json other than GPT-2's into a GGUF file; try "
        "--tokenizer-model with a folder that has the model's tokenizer.model, or --format transformers, and "
        "llama.cpp's converter");
  return tokenizer.kind() == std::string("sentencepiece") ? sentence_pieces(tokenizer, rows)
                                                          : byte_level(tokenizer, rows);
}

}  // namespace tapeformer
