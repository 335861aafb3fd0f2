#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/tokenizers/json/read_json.h>
#include <tapeformer/data/tokenizers/marian.h>
#include <tapeformer/data/tokenizers/numbered_pieces.h>
#include <tapeformer/data/tokenizers/text_vocabulary.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <algorithm>
#include <filesystem>

namespace tapeformer {
namespace {

using MarianVocabulary = NumberedPieces::Vocabulary;

/// `begin` is padding unless it is given.
MarianVocabulary vocabulary_of(std::vector<std::string> pieces, std::int32_t unknown, std::int32_t end,
                               std::int32_t padding, std::optional<std::int32_t> begin = {}) {
  return {std::move(pieces), unknown, end, padding, {unknown, end, padding}, begin.value_or(padding)};
}

class MarianTokenizer : public NumberedPieces {
 public:
  using NumberedPieces::NumberedPieces;

  const char* kind() const override { return "marian"; }
  std::string serialize() const override {
    const MarianVocabulary& words = vocabulary();
    const nlohmann::json header = {{"pieces", words.pieces}, {"unknown", words.unknown},
                                   {"end", words.end},       {"padding", words.padding},
                                   {"begin", *words.begin},  {"language", words.language}};
    return write_tokenizer_file(kind(), header.dump() + "\n" + model());
  }

 private:
  void append_pieces(std::string_view text, std::vector<std::int32_t>& ids) const override {
    if (const std::size_t end = text.find("<<"); text.substr(0, 2) == ">>" && end != text.npos) {
      append_piece(std::string(text.substr(0, end + 2)), ids);
      text.remove_prefix(end + 2);
    }
    NumberedPieces::append_pieces(text, ids);
  }
};

std::unique_ptr<Tokenizer> read_marian(const std::string& payload, const std::string& name) {
  return reading_json(name, "was not written by this program", [&] {
    const auto [line, model] = split_first_line(payload);
    const auto header = parse_json<nlohmann::json>(line, name);
    MarianVocabulary words = vocabulary_of(header.at("pieces").get<std::vector<std::string>>(),
                                           token_id(header.at("unknown")), token_id(header.at("end")),
                                           token_id(header.at("padding")), token_id(header.at("begin")));
    words.language = header.at("language").get<std::string>();
    for (const std::int32_t id : {words.unknown, words.end, words.padding, *words.begin}) {
      check_token(id, static_cast<Index>(words.pieces.size()));
      if (words.pieces[static_cast<std::size_t>(id)].empty())
        throw DataError(name, 0, "has a control token without a name");
    }
    return std::make_unique<MarianTokenizer>(std::move(words), std::string(model), name);
  });
}

/// Marian's pieces, from the file `name`, followed by padding, from which decoders start.
MarianVocabulary with_padding(std::vector<std::string> pieces, const std::string& name) {
  const auto id_of = [&](const char* piece) {
    const auto found = std::find(pieces.begin(), pieces.end(), piece);
    if (found == pieces.end()) throw DataError(name, 0, std::string("lacks ") + piece);
    return static_cast<std::int32_t>(found - pieces.begin());
  };
  const std::int32_t unknown = id_of("<unk>"), end = id_of("</s>");
  const auto padding = static_cast<std::int32_t>(pieces.size());
  pieces.emplace_back("<pad>");
  return vocabulary_of(std::move(pieces), unknown, end, padding);
}

/// The control piece "</s>", first in Marian's models, as a part of a protocol buffer.
constexpr std::string_view kEndPiece("\x0a\x0d\x0a\x04</s>\x15\0\0\0\0\x18\x03", 15);

std::unique_ptr<Tokenizer> train_marian(const TextSource& text, Index size) {
  std::vector<std::string> sentences;
  text([&](std::string_view sentence) { sentences.emplace_back(sentence); });
  std::string content = train_sentencepiece({{"model_type", "unigram"},
                                             {"vocab_size", std::to_string(size - 2)},
                                             {"character_coverage", "1.0"},
                                             {"remove_extra_whitespaces", "true"},
                                             {"bos_id", "-1"},
                                             {"eos_id", "-1"}},
                                            sentences);
  content.insert(0, kEndPiece);
  MarianVocabulary words = with_padding(pieces_of(SentencePieceModel(content, "the trained model")), "it");
  return std::make_unique<MarianTokenizer>(std::move(words), std::move(content), "the trained model");
}

/// tokenizer_config.json; its other fields change neither ids nor texts.
class MarianTokenizerConfig {
 public:
  explicit MarianTokenizerConfig(std::string path) : path_(std::move(path)) {
    if (!std::filesystem::exists(path_)) return;
    fields_ = parse_json<nlohmann::json>(read_file<CheckpointError>(path_), path_);
    if (!fields_.is_object()) throw DataError(path_, 0, "is not a JSON object");
    for (const char* name : {"additional_special_tokens", "extra_special_tokens", "sp_model_kwargs"})
      if (fields_.contains(name) && !fields_[name].empty()) refuse(name);
    if (fields_.contains("split_special_tokens") && fields_["split_special_tokens"] != false)
      refuse("split_special_tokens");
    if (!fields_.contains("added_tokens_decoder")) return;
    for (const auto& [id, token] : fields_["added_tokens_decoder"].items())
      if (const std::string text = token_text(token); text != token_name("unk_token", "<unk>") &&
                                                      text != token_name("eos_token", "</s>") &&
                                                      text != token_name("pad_token", "<pad>"))
        refuse("added_tokens_decoder");
  }

  bool separate_vocabularies() const {
    return fields_.value("separate_vocabs", nlohmann::json(false)) == true;
  }
  /// The text of a special token, or of a language.
  std::string token_name(const char* role, const char* otherwise) const {
    return fields_.contains(role) && !fields_[role].is_null() ? token_text(fields_[role]) : otherwise;
  }

 private:
  [[noreturn]] void refuse(const std::string& name) const {
    throw DataError(path_, 0,
                    format("has {}={}, which is not supported; try without it", name, fields_[name].dump()));
  }

  const std::string path_;
  nlohmann::json fields_ = nlohmann::json::object();
};

MarianVocabulary read_vocabulary(const std::string& path, const MarianTokenizerConfig& config,
                                 std::optional<std::int32_t> begin) {
  const auto ids = parse_json<nlohmann::json>(read_file<CheckpointError>(path), path);
  const std::vector<std::string> pieces = pieces_by_id(ids, path);
  const auto control = [&](const char* role, const char* otherwise) {
    const std::string name = config.token_name(role, otherwise);
    if (name.empty() || !ids.contains(name)) throw DataError(path, 0, format("lacks {}, the {}", name, role));
    return ids[name].get<std::int32_t>();
  };
  return vocabulary_of(pieces, control("unk_token", "<unk>"), control("eos_token", "</s>"),
                       control("pad_token", "<pad>"), begin);
}

/// The vocabulary and the model of a tokenizer.
std::pair<MarianVocabulary, std::string> marian_parts(const Tokenizer& tokenizer) {
  if (const auto* marian = dynamic_cast<const MarianTokenizer*>(&tokenizer))
    return {marian->vocabulary(), marian->model()};
  if (tokenizer.kind() != std::string("sentencepiece"))
    throw DataError(
        format("[tokenizer] MarianMT needs a SentencePiece tokenizer; got kind {}; try a model trained with "
               "--tokenizer marian, unigram or bpe",
               tokenizer.kind()));
  std::vector<std::string> pieces = {"<pad>", "<unk>", "<s>", "</s>"};
  for (auto id = static_cast<std::int32_t>(kSpecialTokens); id < tokenizer.vocabulary_size(); ++id)
    pieces.push_back(tokenizer.piece(id));
  return {vocabulary_of(pieces, kUnknown, kEnd, kPadding, kBegin),
          read_tokenizer_file(tokenizer.serialize(), "the tokenizer").payload};
}

std::string vocabulary_json(const MarianVocabulary& words) {
  std::unordered_map<std::string_view, std::size_t> ids;  // of equal pieces the last counts
  for (std::size_t id = 0; id < words.pieces.size(); ++id) ids[words.pieces[id]] = id;
  std::string text = "{";  // an ordered_json would search all pieces for each
  for (std::size_t id = 0; id < words.pieces.size(); ++id) {
    const std::string& piece = words.pieces[id];
    if (piece.empty() || ids[piece] != id) continue;
    text += (text.size() == 1 ? "\n " : ",\n ") + nlohmann::json(piece).dump() + ": " + std::to_string(id);
  }
  return text + "\n}\n";
}

/// A piece for YAML, as JSON, with escapes also for what YAML refuses or takes for line ends.
std::string yaml_text(const std::string& piece) {
  std::string text;
  for (const std::string_view character : split_code_points(piece)) {
    const char32_t point = decode_code_point(character);
    const bool escapes =
        (point >= 0x7f && point < 0xa0) || (point | 1) == 0x2029 || point == 0xfeff || (point | 1) == 0xffff;
    const std::string quoted = nlohmann::json(std::string(character)).dump(-1, ' ', escapes);
    text += quoted.substr(1, quoted.size() - 2);
  }
  return '"' + text + '"';
}

}  // namespace

TokenizerKind marian_pieces() { return {"marian", "marian", train_marian, read_marian, kSpecialTokens}; }

std::pair<std::shared_ptr<const Tokenizer>, std::shared_ptr<const Tokenizer>> load_marian_tokenizers(
    const std::string& folder, std::optional<std::int32_t> begin) {
  const MarianTokenizerConfig config(folder + "/tokenizer_config.json");
  const auto side = [&](const char* model, const char* vocabulary, const char* language) {
    const std::string path = folder + "/" + model;
    MarianVocabulary words = read_vocabulary(folder + "/" + vocabulary, config, begin);
    words.language = config.token_name(language, "");
    return std::make_shared<const MarianTokenizer>(std::move(words), read_file<CheckpointError>(path), path);
  };
  return {
      side("source.spm", "vocab.json", "source_lang"),
      side("target.spm", config.separate_vocabularies() ? "target_vocab.json" : "vocab.json", "target_lang")};
}

std::map<std::string, std::string> marian_files(const Tokenizer& source, const Tokenizer& target) {
  const auto [source_words, source_model] = marian_parts(source);
  const auto [target_words, target_model] = marian_parts(target);
  const std::string source_json = vocabulary_json(source_words), target_json = vocabulary_json(target_words);
  nlohmann::ordered_json config = {{"tokenizer_class", "MarianTokenizer"},
                                   {"separate_vocabs", source_json != target_json},
                                   {"clean_up_tokenization_spaces", false}};
  for (const auto& [role, id] : {std::pair("unk_token", source_words.unknown),
                                 {"eos_token", source_words.end},
                                 {"pad_token", source_words.padding}})
    config[role] = source_words.pieces[static_cast<std::size_t>(id)];
  if (!source_words.language.empty()) config["source_lang"] = source_words.language;
  if (!target_words.language.empty()) config["target_lang"] = target_words.language;
  std::map<std::string, std::string> files = {{"source.spm", source_model},
                                              {"target.spm", target_model},
                                              {"vocab.json", source_json},
                                              {"tokenizer_config.json", config.dump(2) + "\n"}};
  if (source_json != target_json) files["target_vocab.json"] = target_json;
  return files;
}

std::pair<std::shared_ptr<const Tokenizer>, std::shared_ptr<const Tokenizer>> load_marian_vocabularies(
    const std::string& source, const std::string& target) {
  const auto side = [](const std::string& path, const char* beside) {
    const std::filesystem::path file(path);
    const std::string model = file.extension() == ".spm" ? path : (file.parent_path() / beside).string();
    const std::string content = read_file<CheckpointError>(model);
    const auto pieces =
        model == path ? pieces_of(SentencePieceModel(content, path)) : read_yaml_vocabulary(path);
    return std::make_shared<const MarianTokenizer>(with_padding(pieces, path), content, model);
  };
  return {side(source, "source.spm"), side(target, "target.spm")};
}

MarianVocabularyFiles marian_vocabulary_files(const Tokenizer& source, const Tokenizer& target) {
  MarianVocabularyFiles result;
  std::vector<std::string> ids;  // as YAML
  bool are_same = true;          // the ids of the models and of the vocabularies
  for (const Tokenizer* const tokenizer : {&source, &target}) {
    const auto* const marian = dynamic_cast<const MarianTokenizer*>(tokenizer);
    if (!marian || marian->padding() + 1 != marian->vocabulary_size())
      throw DataError("[export] padding must be the last token; try a model trained with --tokenizer marian");
    std::vector<std::string> pieces = marian->vocabulary().pieces;
    pieces.pop_back();
    are_same = are_same && pieces == pieces_of(SentencePieceModel(marian->model(), "the model"));
    std::string text;
    for (std::size_t id = 0; id < pieces.size(); ++id)
      text += yaml_text(pieces[id]) + ": " + std::to_string(id) + "\n";
    ids.push_back(text);
    result.names.push_back(result.names.empty() ? "source.spm" : "target.spm");
    result.files[result.names.back()] = marian->model();
  }
  const bool is_shared = ids[0] == ids[1];
  const std::vector<std::string> names{is_shared ? "vocab.yml" : "src.vocab.yml",
                                       is_shared ? "vocab.yml" : "trg.vocab.yml"};
  for (std::size_t i = 0; i < names.size(); ++i) result.files[names[i]] = ids[i];
  if (!are_same) result.names = names;
  return result;
}

}  // namespace tapeformer
