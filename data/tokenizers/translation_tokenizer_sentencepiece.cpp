#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/sentencepiece_model.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/data/tokenizers/translation_tokenizer_kinds.h>

namespace tapeformer {
namespace {

class SubwordTokenizer : public TranslationTokenizer {
 public:
  SubwordTokenizer(std::string model, const std::string& name)
      : model_(std::move(model), name), model_ids_(kSpecialTokens, model_.unknown()) {
    for (std::int32_t id = 0; id < model_.size(); ++id) {
      const bool special = model_.is_control(id) || id == model_.unknown();
      ids_.push_back(special ? kUnknown : static_cast<std::int32_t>(model_ids_.size()));
      if (!special) model_ids_.push_back(id);
    }
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids = model_.encode(text);
    for (std::int32_t& id : ids) id = ids_[static_cast<std::size_t>(id)];
    return ids;
  }
  std::string decode(const std::vector<std::int32_t>& ids) const override {
    std::vector<std::int32_t> model_ids;
    for (const std::int32_t id : ids) {
      check_token(id, vocabulary_size());
      if (id == kEnd) break;
      if (id != kPadding && id != kBegin) model_ids.push_back(model_ids_[static_cast<std::size_t>(id)]);
    }
    return model_.decode(model_ids);
  }
  Index vocabulary_size() const override { return static_cast<Index>(model_ids_.size()); }
  std::string piece(std::int32_t id) const override {
    check_token(id, vocabulary_size());
    if (id < kSpecialTokens) return special_piece(id);
    return model_.piece(model_ids_[static_cast<std::size_t>(id)]);
  }
  std::string serialize() const override { return write_tokenizer_file("sentencepiece", model_.content()); }

 private:
  SentencePieceModel model_;
  std::vector<std::int32_t> model_ids_;  // by our id
  std::vector<std::int32_t> ids_;        // by the model's id
};

}  // namespace

std::unique_ptr<TranslationTokenizer> make_subword_tokenizer(std::string model, const std::string& name) {
  return std::make_unique<SubwordTokenizer>(std::move(model), name);
}

std::unique_ptr<TranslationTokenizer> train_subword_tokenizer(const TokenizerConfig& config,
                                                              const std::vector<std::string>& sentences) {
  // The trainer takes the names of control pieces out of the text, which tabs are not in.
  std::string model = train_sentencepiece({{"model_type", name_of(config.kind)},
                                           {"vocab_size", std::to_string(config.vocabulary_size)},
                                           {"character_coverage", "1.0"},
                                           {"byte_fallback", config.byte_fallback ? "true" : "false"},
                                           {"pad_id", std::to_string(kPadding)},
                                           {"unk_id", std::to_string(kUnknown)},
                                           {"bos_id", std::to_string(kBegin)},
                                           {"eos_id", std::to_string(kEnd)},
                                           {"pad_piece", "\tpad"},
                                           {"unk_piece", "\tunk"},
                                           {"bos_piece", "\tbegin"},
                                           {"eos_piece", "\tend"}},
                                          sentences);
  return make_subword_tokenizer(std::move(model), "the trained model");
}

}  // namespace tapeformer
