#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/number_of.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/data/tokenizers/tokenizer_kinds.h>

namespace tapeformer {
namespace {

/// Hands the sentences to the trainer without a copy of the corpus.
class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& sentences) : sentences_(sentences) {}
  bool done() const override { return next_ == sentences_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return sentences_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& sentences_;
  std::size_t next_ = 0;
};

}  // namespace

std::string train_sentencepiece(std::unordered_map<std::string, std::string> options,
                                const std::vector<std::string>& sentences) {
  // One thread makes training a function of the sentences alone; the identity normalisation and keeping every
  // space make decoding exact.
  options.insert({{"normalization_rule_name", "identity"},
                  {"remove_extra_whitespaces", "false"},
                  {"num_threads", "1"},
                  {"minloglevel", "2"}});
  Sentences iterator(sentences);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(options, &iterator, &model);
  if (!status.ok()) {
    throw DataError("[tokenizer] SentencePiece cannot learn " + options["vocab_size"] + " pieces from " +
                    number_of(sentences.size(), "sentence") + ": " + status.ToString() +
                    "; try another vocabulary size");
  }
  return model;
}

/// The library's processor, and its ids against ours: ours start with the special pieces in a fixed order.
struct SentencePieceTokenizer::Library {
  sentencepiece::SentencePieceProcessor processor;
  std::vector<int> theirs;         // by our id
  std::vector<std::int32_t> ours;  // by their id
};

SentencePieceTokenizer::SentencePieceTokenizer(std::string model, const std::string& name)
    : library_(std::make_unique<Library>()), model_(std::move(model)) {
  const auto status = library_->processor.LoadFromSerializedProto(model_);
  if (!status.ok()) throw DataError(name, 0, "is not a SentencePiece model: " + status.ToString());
  const int unknown = library_->processor.unk_id();
  library_->theirs.assign(kSpecialTokens, unknown);
  for (int id = 0; id < library_->processor.GetPieceSize(); ++id) {
    const bool special = library_->processor.IsControl(id) || library_->processor.IsUnknown(id);
    library_->ours.push_back(special ? kUnknown : static_cast<std::int32_t>(library_->theirs.size()));
    if (!special) library_->theirs.push_back(id);
  }
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

std::unique_ptr<Tokenizer> SentencePieceTokenizer::train(const TokenizerConfig& config,
                                                         const std::vector<std::string>& sentences) {
  std::string model = train_sentencepiece({{"model_type", name_of(config.kind)},
                                           {"vocab_size", std::to_string(config.vocabulary_size)},
                                           {"hard_vocab_limit", "false"},
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
  std::vector<int> theirs;
  const auto status = library_->processor.Encode({text.data(), text.size()}, &theirs);
  if (!status.ok()) throw DataError("[tokenizer] " + status.ToString());
  std::vector<std::int32_t> ids;
  ids.reserve(theirs.size());
  for (const int id : theirs) ids.push_back(library_->ours[static_cast<std::size_t>(id)]);
  return ids;
}

std::string SentencePieceTokenizer::decode(const std::vector<std::int32_t>& ids) const {
  std::vector<int> theirs;
  for (const std::int32_t id : ids) {
    check_token(id, vocabulary_size());
    if (id == kEnd) break;
    if (id != kPadding && id != kBegin) theirs.push_back(library_->theirs[static_cast<std::size_t>(id)]);
  }
  std::string text;
  const auto status = library_->processor.Decode(theirs, &text);
  if (!status.ok()) throw DataError("[tokenizer] " + status.ToString());
  return text;
}

Index SentencePieceTokenizer::vocabulary_size() const { return static_cast<Index>(library_->theirs.size()); }

std::string SentencePieceTokenizer::piece(std::int32_t id) const {
  check_token(id, vocabulary_size());
  if (id < kSpecialTokens) return special_piece(id);
  return library_->processor.IdToPiece(library_->theirs[static_cast<std::size_t>(id)]);
}

std::string SentencePieceTokenizer::serialize() const {
  return write_tokenizer_file("sentencepiece", model_);
}

}  // namespace tapeformer
