#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/tokenizers/json/read_json.h>
#include <tapeformer/data/tokenizers/json/tokenizer_json.h>
#include <tapeformer/data/tokenizers/numbered_pieces.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/data/tokenizers/transformers.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

namespace tapeformer {
namespace {

using Json = nlohmann::json;
using Files = std::map<std::string, std::string>;

constexpr const char *kConfigFile = "config.json", *kGenerationFile = "generation_config.json",
                     *kJsonFile = "tokenizer.json", *kTokenizerConfigFile = "tokenizer_config.json",
                     *kSpecialFile = "special_tokens_map.json", *kAddedFile = "added_tokens.json",
                     *kVocabularyFile = "vocab.json", *kModelFile = "spiece.model",
                     *kFairseqFile = "sentencepiece.bpe.model";
constexpr const char* kAllFiles[] = {kConfigFile,          kGenerationFile, kJsonFile,
                                     kTokenizerConfigFile, kSpecialFile,    kFairseqFile,
                                     kModelFile,           kVocabularyFile, kAddedFile};

/// Settings of generation.
constexpr const char *kStart = "decoder_start_token_id", *kForced = "forced_bos_token_id";

/// M2M100's languages in the order of their ids; its files need not list them.
constexpr const char* kM2m100Languages =
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr "
    "ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or "
    "pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu";

/// Where a language's token is: nowhere, before its sentences, or after their end.
enum class LanguagePlace { none, before, after };

class TransformersTokenizer : public Tokenizer {
 public:
  /// Messages call the folder `name`.
  TransformersTokenizer(Files files, const std::string& name)
      : files_(std::move(files)),
        name_(name),
        config_(object_in(kConfigFile)),
        settings_(object_in(settings_file())),
        options_(object_in(kTokenizerConfigFile)),
        type_(config_.value("model_type", "")),
        place_(place_of_language()) {
    if (files_.count(kJsonFile) > 0) {
      read_json();
    } else {
      read_pieces();
    }
    for (const auto& [token, id] : controls_) names_.emplace(id, token);
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    plain_->encode(text, ids);
  }
  std::string bytes_of(std::int32_t id) const override {
    return id < plain_->vocabulary_size() ? plain_->bytes_of(id) : "";
  }
  std::string decode(const std::vector<std::int32_t>& ids) const override {
    std::vector<std::int32_t> known;  // ids of text within the vocabulary: models may have more rows
    std::copy_if(ids.begin(), ids.end(), std::back_inserter(known),
                 [&](std::int32_t id) { return id < plain_->vocabulary_size() && names_.count(id) == 0; });
    return plain_->decode(known);
  }
  Index vocabulary_size() const override { return plain_->vocabulary_size(); }
  std::string piece(std::int32_t id) const override {
    const auto control = names_.find(id);
    if (control != names_.end()) return control->second;
    return id < plain_->vocabulary_size() ? plain_->piece(id) : "";
  }
  std::int32_t padding() const override { return control("pad_token", "<pad>"); }
  std::optional<std::int32_t> begin() const override { return plain_->begin(); }
  std::optional<std::int32_t> end() const override { return control("eos_token", "</s>"); }
  const char* kind() const override { return "transformers"; }
  std::string serialize() const override {
    Json sizes = Json::object();
    std::string contents;
    for (const auto& [file, content] : files_) sizes[file] = content.size(), contents += content;
    return write_tokenizer_file(kind(), Json{{"files", sizes}}.dump() + "\n" + contents);
  }

  SentenceFrame frame(const Languages& languages) const {
    SentenceFrame frame;
    frame.padding = padding(), frame.end = *end();
    const bool is_t5 = type_.find("t5") != std::string::npos;
    frame.begin = setting(kStart).value_or(is_t5 ? frame.padding : frame.end);
    if (settings_.contains(kForced))
      if (const auto first = setting(kForced)) frame.forced = {*first};
    if (place_ == LanguagePlace::none) {
      refuse_languages(languages);
      if (begin()) frame.source_before = frame.target_before = {*begin()};
      return frame;
    }
    const auto [source, target] = ids_of(languages);
    const bool is_after = place_ == LanguagePlace::after;
    const bool is_legacy = options_.value("legacy_behaviour", Json()) == true;
    (is_after || is_legacy ? frame.source_after : frame.source_before) = {source};
    if (is_after) {
      frame.target_after = {target}, frame.begin = target;
    } else {
      frame.target_before = frame.forced = {target};
    }
    return frame;
  }

  Files files_with(const Languages& languages) const {
    Files files = files_;
    if (place_ == LanguagePlace::none) return files;
    const auto [source, target] = ids_of(languages);
    auto settings = parse_json(files.at(settings_file()));
    settings[target_setting()] = target;
    files[settings_file()] = settings.dump(2) + "\n";
    Json options = options_;
    options["src_lang"] = language_name(source), options["tgt_lang"] = language_name(target);
    files[kTokenizerConfigFile] = options.dump(2) + "\n";
    return files;
  }

  static void refuse_languages(const Languages& languages) {
    if (languages.source.empty() && languages.target.empty()) return;
    throw DataError(
        "--source-language and --target-language choose languages of mBART, M2M100 and NLLB; this model has "
        "none to choose from; try without them");
  }

 private:
  const char* settings_file() const {
    return files_.count(kGenerationFile) > 0 ? kGenerationFile : kConfigFile;
  }
  Json object_in(const char* file) const {
    const auto found = files_.find(file);
    if (found == files_.end()) return Json::object();
    Json object = parse_json<Json>(found->second, name_ + "/" + file);
    if (!object.is_object()) throw DataError(name_ + "/" + file, 0, "is not a JSON object");
    return object;
  }
  /// The setting that names the language of outputs.
  const char* target_setting() const { return place_ == LanguagePlace::after ? kStart : kForced; }
  std::optional<std::int32_t> setting(const char* name) const {
    const Json id = settings_.value(name, config_.value(name, Json()));
    if (!id.is_number_unsigned()) return std::nullopt;
    return reading_json(name_, format("has a mistaken {}", name), [&] { return token_id(id); });
  }

  LanguagePlace place_of_language() const {
    const std::string named = token_text(options_.value("tokenizer_class", Json())),
                      tokenizer =
                          named.empty() ? token_text(config_.value("tokenizer_class", Json())) : named;
    for (const auto& [part, place] : {std::pair("MBart50", LanguagePlace::before),
                                      {"MBart", LanguagePlace::after},
                                      {"Nllb", LanguagePlace::before},
                                      {"M2M100", LanguagePlace::before}})
      if (tokenizer.find(part) != std::string::npos) return place;
    return type_ == "mbart"     ? LanguagePlace::after
           : type_ == "m2m_100" ? LanguagePlace::before
                                : LanguagePlace::none;
  }

  void read_json() {
    Json file = object_in(kJsonFile);
    // With languages the tokenizer's class decides the tokens around a sentence, whatever the file says.
    if (place_ != LanguagePlace::none) file["post_processor"] = nullptr;
    plain_ = make_tokenizer_json(file, "", name_ + "/" + kJsonFile);
    for (const Json& token : file.value("added_tokens", Json::array()))
      if (token.value("special", false)) controls_[token_text(token)] = token_id(token.at("id"));
  }

  void read_pieces() {
    const bool is_fairseq = files_.count(kFairseqFile) > 0;
    const char* const file = is_fairseq ? kFairseqFile : kModelFile;
    if (files_.count(file) == 0)
      throw DataError(name_, 0,
                      format("has no tokenizer: none of {}, {}, {} and source.spm; try a folder with one",
                             kJsonFile, kFairseqFile, kModelFile));
    NumberedPieces::Vocabulary words;
    if (files_.count(kVocabularyFile) > 0) {
      words.pieces = pieces_by_id(object_in(kVocabularyFile), name_ + "/" + kVocabularyFile);
    } else {
      words.pieces = pieces_of(SentencePieceModel(files_.at(file), name_ + "/" + file));
      if (is_fairseq) {  // fairseq has its own first ids, one more than the model
        const auto replaced = static_cast<std::ptrdiff_t>(std::min<std::size_t>(3, words.pieces.size()));
        words.pieces.erase(words.pieces.begin(), words.pieces.begin() + replaced);
        words.pieces.insert(words.pieces.begin(), {"<s>", "<pad>", "</s>", "<unk>"});
      }
    }
    const std::size_t plain = words.pieces.size();
    for (const auto& [token, id] : added_ids(words.pieces)) {
      const auto at = static_cast<std::size_t>(id);
      if (at > plain + kMostGaps)
        throw DataError(name_, 0,
                        format("gives {} the id {}, far from those of its {}; restore its files", token, id,
                               number_of(static_cast<Index>(plain), "piece")));
      if (at >= words.pieces.size()) words.pieces.resize(at + 1);
      words.pieces[at] = token;
      controls_[token] = id;
    }
    for (const char* name : {"<s>", "<pad>", "</s>", "<unk>"}) {
      const auto found = std::find(words.pieces.begin(), words.pieces.end(), name);
      if (found != words.pieces.end())
        controls_[name] = static_cast<std::int32_t>(found - words.pieces.begin());
    }
    words.unknown = control("unk_token", "<unk>"), words.padding = padding(), words.end = *end();
    for (const auto& [token, id] : controls_) words.controls.push_back(id);
    plain_ = std::make_unique<NumberedPieces>(std::move(words), files_.at(file), name_ + "/" + file);
  }

  /// The tokens that files add to a model's pieces, and their ids, which follow those of the pieces unless a
  /// file gives them, or the token is a piece.
  std::map<std::string, std::int32_t> added_ids(const std::vector<std::string>& pieces) const {
    std::map<std::string, std::int32_t> ids;
    const Json added = object_in(kAddedFile),
               decoder = options_.value("added_tokens_decoder", Json::object());
    for (const auto& [token, id] : added.items()) ids[token] = token_id(id);
    for (const auto& [id, token] : decoder.items())
      ids[token_text(token)] = token_id(parse_json<Json>(id, "the id " + id));
    std::vector<std::string> listed;
    for (const Json& file : {options_, object_in(kSpecialFile)})
      for (const char* list : {"additional_special_tokens", "extra_special_tokens"})
        for (const Json& token : file.value(list, Json::array())) listed.push_back(token_text(token));
    if (files_.count(kVocabularyFile) > 0 && options_.value("language_codes", "m2m100") == "m2m100") {
      std::istringstream all(kM2m100Languages);
      for (std::string code; all >> code;) listed.push_back("__" + code + "__");
    }
    auto next = static_cast<std::int32_t>(pieces.size());
    for (const std::string& token : listed) {
      const bool is_sentinel = token.find("<extra_id_") == 0;  // of T5, whose ids are in no such order
      if (token.empty() || is_sentinel || ids.count(token) > 0) continue;
      const auto piece = std::find(pieces.begin(), pieces.end(), token);
      ids[token] = piece == pieces.end() ? next++ : static_cast<std::int32_t>(piece - pieces.begin());
    }
    return ids;
  }

  std::int32_t control(const char* role, const char* otherwise) const {
    const std::string named = token_text(options_.value(role, Json()));
    const std::string token = named.empty() ? otherwise : named;
    const auto found = controls_.find(token);
    if (found == controls_.end())
      throw DataError(name_, 0, format("has no token {} among its control tokens, the {}", token, role));
    return found->second;
  }

  bool is_language(const std::string& token) const { return !token.empty() && token[0] != '<'; }
  /// A language's name in tokenizer_config.json.
  std::string language_name(std::int32_t id) const {
    const std::string& token = names_.at(id);
    return token.substr(0, 2) == "__" ? token.substr(2, token.size() - 4) : token;
  }
  /// The id of a language's token: by the given name, the name in a field, or the token of a setting.
  std::int32_t language(const char* side, const std::string& asked, const char* field,
                        std::optional<std::int32_t> set) const {
    std::string name = asked.empty() ? token_text(options_.value(field, Json())) : asked;
    if (name.empty() && set && names_.count(*set) > 0) name = names_.at(*set);
    for (const std::string& token : {name, "__" + name + "__"}) {
      const auto found = controls_.find(token);
      if (found != controls_.end() && is_language(token)) return found->second;
    }
    std::vector<std::string> all;
    for (const auto& [token, id] : controls_)
      if (is_language(token)) all.push_back(language_name(id));
    throw DataError(format("--{}-language must be one of {}; got {}", side, joined(all, ", "),
                           name.empty() ? "none" : name));
  }
  std::pair<std::int32_t, std::int32_t> ids_of(const Languages& languages) const {
    return {language("source", languages.source, "src_lang", {}),
            language("target", languages.target, "tgt_lang", setting(target_setting()))};
  }

  const Files files_;
  const std::string name_;
  const Json config_, settings_, options_;
  const std::string type_;  // of the model
  const LanguagePlace place_;
  std::unique_ptr<const Tokenizer> plain_;
  std::map<std::string, std::int32_t> controls_;
  std::map<std::int32_t, std::string> names_;  // of controls
};

std::unique_ptr<Tokenizer> read_files(const std::string& payload, const std::string& name) {
  return reading_json(name, "is damaged", [&] {
    auto [line, contents] = split_first_line(payload);
    const auto header = parse_json<Json>(line, "it");
    Files files;
    for (const auto& [file, size] : header.at("files").items()) {
      files[file] = contents.substr(0, size.get<std::size_t>());
      contents.remove_prefix(files[file].size());
    }
    return std::make_unique<TransformersTokenizer>(std::move(files), name);
  });
}

}  // namespace

TokenizerKind transformers_files() { return {"transformers", "transformers", {}, read_files}; }

std::shared_ptr<const Tokenizer> load_transformers_tokenizer(const std::string& folder) {
  Files files;
  for (const char* name : kAllFiles)
    if (std::filesystem::exists(folder + "/" + name)) files[name] = read_file(folder + "/" + name);
  return reading_json(folder, "has a damaged tokenizer", [&] {
    return std::make_shared<const TransformersTokenizer>(std::move(files), folder);
  });
}

SentenceFrame frame_of(const Tokenizer& source, const Tokenizer& target, const Languages& languages) {
  if (const auto* files = dynamic_cast<const TransformersTokenizer*>(&target)) return files->frame(languages);
  TransformersTokenizer::refuse_languages(languages);
  SentenceFrame frame;
  frame.padding = std::min(source.padding(), target.padding());  // within either vocabulary
  frame.begin = *target.begin(), frame.end = *target.end();
  frame.begins_zero = target.begin() == target.padding();
  return frame;
}

std::map<std::string, std::string> transformers_files_of(const Tokenizer& tokenizer,
                                                         const Languages& languages) {
  const auto* files = dynamic_cast<const TransformersTokenizer*>(&tokenizer);
  return files == nullptr ? Files() : files->files_with(languages);
}

}  // namespace tapeformer
