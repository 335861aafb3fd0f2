#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/tokenizers/pieces.h>
#include <tapeformer/data/tokenizers/sentencepiece_model.h>
#include <tapeformer/data/tokenizers/sentencepiece_sentences.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>

namespace tapeformer {
namespace {

class SubwordTokenizer : public Tokenizer {
 public:
  SubwordTokenizer(std::string model, const std::string& name)
      : model_(std::move(model), name), model_ids_(kSpecialTokens, model_.library().unk_id()) {
    for (std::int32_t id = 0; id < model_.library().GetPieceSize(); ++id) {
      const bool special = model_.library().IsControl(id) || model_.library().IsUnknown(id);
      ids_.push_back(special ? kUnknown : static_cast<std::int32_t>(model_ids_.size()));
      if (!special) model_ids_.push_back(id);
    }
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    check_utf8(text, "SentencePiece");
    for (const std::int32_t id : model_.encode(text)) ids.push_back(ids_[static_cast<std::size_t>(id)]);
  }
  std::string bytes_of(std::int32_t id) const override {
    check_token(id, vocabulary_size());
    return id < kSpecialTokens && id != kUnknown ? ""
                                                 : model_.text_of(model_ids_[static_cast<std::size_t>(id)]);
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
    return model_.library().IdToPiece(model_ids_[static_cast<std::size_t>(id)]);
  }
  std::optional<std::int32_t> begin() const override { return kBegin; }
  std::optional<std::int32_t> end() const override { return kEnd; }
  const char* kind() const override { return "sentencepiece"; }
  std::string serialize() const override { return write_tokenizer_file(kind(), model_.content()); }

 private:
  SentencePieceModel model_;
  std::vector<std::int32_t> model_ids_;  // the model's ids, by the tokenizer's
  std::vector<std::int32_t> ids_;        // the tokenizer's ids, by the model's
};

std::unique_ptr<Tokenizer> read_subwords(std::string model, const std::string& name) {
  return std::make_unique<SubwordTokenizer>(std::move(model), name);
}

std::unique_ptr<Tokenizer> train_subwords(const std::string& model_type, const TextSource& text, Index size) {
  std::vector<std::string> sentences;
  text([&](std::string_view sentence) { sentences.emplace_back(sentence); });
  // The trainer removes the names of control pieces from texts; these contain a tab, which no text does.
  std::string model = train_sentencepiece({{"model_type", model_type},
                                           {"vocab_size", std::to_string(size)},
                                           {"character_coverage", "1.0"},
                                           {"pad_id", std::to_string(kPadding)},
                                           {"unk_id", std::to_string(kUnknown)},
                                           {"bos_id", std::to_string(kBegin)},
                                           {"eos_id", std::to_string(kEnd)},
                                           {"pad_piece", "\tpad"},
                                           {"unk_piece", "\tunk"},
                                           {"bos_piece", "\tbegin"},
                                           {"eos_piece", "\tend"}},
                                          sentences);
  return read_subwords(std::move(model), "the trained model");
}

}  // namespace

TokenizerKind sentence_pieces(const std::string& model_type) {
  return {model_type, "sentencepiece",
          [model_type](const TextSource& text, Index size) { return train_subwords(model_type, text, size); },
          read_subwords};
}

std::unique_ptr<Tokenizer> load_sentencepiece_model(const std::string& path) {
  return read_subwords(read_file(path), path);
}

}  // namespace tapeformer
