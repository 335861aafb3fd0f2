#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/sentencepiece_check.h>
#include <tapeformer/data/tokenizers/sentencepiece_model.h>

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

void check(const sentencepiece::util::Status& status) {
  if (!status.ok()) throw DataError("[tokenizer] " + status.ToString());
}

}  // namespace

struct SentencePieceModel::Library {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceModel::SentencePieceModel(std::string content, const std::string& name)
    : content_(std::move(content)) {
  check_sentencepiece(content_, name);
  auto library = std::make_unique<Library>();
  const auto status = library->processor.LoadFromSerializedProto(content_);
  if (!status.ok()) throw DataError(name, 0, "is not a SentencePiece model: " + status.ToString());
  library_ = std::move(library);
}

SentencePieceModel::~SentencePieceModel() = default;

std::vector<std::int32_t> SentencePieceModel::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  check(library_->processor.Encode({text.data(), text.size()}, &ids));
  return ids;
}

std::string SentencePieceModel::decode(const std::vector<std::int32_t>& ids) const {
  std::string text;
  check(library_->processor.Decode(ids, &text));
  return text;
}

std::int32_t SentencePieceModel::size() const { return library_->processor.GetPieceSize(); }
std::string SentencePieceModel::piece(std::int32_t id) const { return library_->processor.IdToPiece(id); }
std::string SentencePieceModel::text_of(std::int32_t id) const {
  if (is_control(id)) return {};
  if (id == unknown()) return decode({id});  // the model chooses the character
  std::string text = piece(id);
  if (is_byte(id)) return std::string(1, static_cast<char>(std::stoi(text.substr(3), nullptr, 16)));
  for (std::size_t i = 0; (i = text.find(kSentencePieceSpace, i)) != std::string::npos; ++i)
    text.replace(i, kSentencePieceSpace.size(), " ");
  return text;
}

bool SentencePieceModel::is_control(std::int32_t id) const { return library_->processor.IsControl(id); }
bool SentencePieceModel::is_byte(std::int32_t id) const { return library_->processor.IsByte(id); }
std::int32_t SentencePieceModel::unknown() const { return library_->processor.unk_id(); }
std::int32_t SentencePieceModel::begin() const { return library_->processor.bos_id(); }
std::int32_t SentencePieceModel::end() const { return library_->processor.eos_id(); }

std::string train_sentencepiece(std::unordered_map<std::string, std::string> options,
                                const std::vector<std::string>& sentences) {
  // With one thread the model is a function of the sentences alone. The identity normalisation and keeping
  // every space make decoding exact.
  options.insert({{"normalization_rule_name", "identity"},
                  {"remove_extra_whitespaces", "false"},
                  {"hard_vocab_limit", "false"},
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

}  // namespace tapeformer
