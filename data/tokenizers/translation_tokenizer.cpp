#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/autograd/words.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/data/tokenizers/translation_tokenizer_kinds.h>

namespace tapeformer {
namespace {

constexpr TokenizerKind kKinds[] = {TokenizerKind::word, TokenizerKind::space, TokenizerKind::character,
                                    TokenizerKind::bpe, TokenizerKind::unigram};

}  // namespace

TokenizerKind tokenizer_kind(const std::string& name) {
  for (const TokenizerKind kind : kKinds) {
    if (name == name_of(kind)) return kind;
  }
  throw DataError("[tokenizer] a kind is word, space, character, bpe or unigram; got \"" + name + "\"");
}

const char* name_of(TokenizerKind kind) {
  switch (kind) {
    case TokenizerKind::word: return "word";
    case TokenizerKind::space: return "space";
    case TokenizerKind::character: return "character";
    case TokenizerKind::bpe: return "bpe";
    case TokenizerKind::unigram: return "unigram";
  }
  return "?";
}

const char* special_piece(std::int32_t id) {
  static constexpr const char* kNames[] = {"<pad>", "<unk>", "<begin>", "<end>"};
  return kNames[id];
}

std::unique_ptr<TranslationTokenizer> train_translation_tokenizer(const TokenizerConfig& config,
                                                                  const std::vector<std::string>& sentences) {
  if (config.vocabulary_size <= kSpecialTokens || config.min_count < 1) {
    throw DataError(
        "[tokenizer] a vocabulary holds more than the 4 special pieces, and counts start at 1; got " +
        number_of(config.vocabulary_size, "piece") + " seen " + number_of(config.min_count, "time"));
  }
  const bool subword = config.kind == TokenizerKind::bpe || config.kind == TokenizerKind::unigram;
  return subword ? train_subword_tokenizer(config, sentences) : train_piece_tokenizer(config, sentences);
}

std::unique_ptr<TranslationTokenizer> parse_translation_tokenizer(std::string_view content,
                                                                  const std::string& name) {
  TokenizerFile file = read_tokenizer_file(content, name);
  if (file.kind == "sentencepiece") return make_subword_tokenizer(std::move(file.payload), name);
  const TokenizerKind kind = tokenizer_kind(file.kind);
  std::vector<std::string> pieces;
  try {
    pieces = parse_json(file.payload, "it").get<std::vector<std::string>>();
  } catch (const CheckpointError& error) {
    throw DataError(name, 0, std::string("is not a list of pieces: ") + error.what());
  } catch (const nlohmann::json::exception& error) {
    throw DataError(name, 0, "is not a list of pieces: " + reason_of(error));
  }
  return make_piece_tokenizer(kind, std::move(pieces));
}

std::unique_ptr<TranslationTokenizer> load_translation_tokenizer(const std::string& path) {
  return parse_translation_tokenizer(read_file(path), path);
}

std::unique_ptr<TranslationTokenizer> load_sentencepiece_model(const std::string& path) {
  return make_subword_tokenizer(read_file(path), path);
}

}  // namespace tapeformer
