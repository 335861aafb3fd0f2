#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/data/tokenizers/tokenizer_kinds.h>

namespace tapeformer {

SentencePieceTokenizer::SentencePieceTokenizer(std::string model, const std::string& name)
    : model_(std::move(model), name), model_ids_(kSpecialTokens, model_.unknown()) {
  for (std::int32_t id = 0; id < model_.size(); ++id) {
    const bool special = model_.is_control(id) || id == model_.unknown();
    ids_.push_back(special ? kUnknown : static_cast<std::int32_t>(model_ids_.size()));
    if (!special) model_ids_.push_back(id);
  }
}

std::unique_ptr<Tokenizer> SentencePieceTokenizer::train(const TokenizerConfig& config,
                                                         const std::vector<std::string>& sentences) {
  std::string model = train_sentencepiece({{"model_type", name_of(config.kind)},
                                           {"vocab_size", std::to_string(config.vocabulary_size)},
                                           {"character_coverage", "1.0"},
                                           {"byte_fallback", config.byte_fallback ? "true" : "false"},
                                           {"pad_id", std::to_string(kPadding)},
                                           {"unk_id", std::to_string(kUnknown)},
                                           {"bos_id", std::to_string(kBegin)},
                                           {"eos_id", std::to_string(kEnd)}},
                                          sentences);
  return std::make_unique<SentencePieceTokenizer>(std::move(model), "the trained model");
}

std::vector<std::int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids = model_.encode(text);
  for (std::int32_t& id : ids) id = ids_[static_cast<std::size_t>(id)];
  return ids;
}

std::string SentencePieceTokenizer::decode(const std::vector<std::int32_t>& ids) const {
  std::vector<std::int32_t> model_ids;
  for (const std::int32_t id : ids) {
    check_token(id, vocabulary_size());
    if (id == kEnd) break;
    if (id != kPadding && id != kBegin) model_ids.push_back(model_ids_[static_cast<std::size_t>(id)]);
  }
  return model_.decode(model_ids);
}

Index SentencePieceTokenizer::vocabulary_size() const { return static_cast<Index>(model_ids_.size()); }

std::string SentencePieceTokenizer::piece(std::int32_t id) const {
  check_token(id, vocabulary_size());
  if (id < kSpecialTokens) return special_piece(id);
  return model_.piece(model_ids_[static_cast<std::size_t>(id)]);
}

std::string SentencePieceTokenizer::serialize() const {
  return write_tokenizer_file("sentencepiece", model_.content());
}

}  // namespace tapeformer
