#include <sentencepiece_trainer.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/json/parts.h>
#include <tapeformer/data/tokenizers/json/precompiled.h>
#include <tapeformer/data/tokenizers/protocol_buffer.h>
#include <tapeformer/data/tokenizers/sentencepiece_model.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/data/tokenizers/utf8.h>

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

/// Checks the maps of both normalisers, because the library follows them wherever they lead.
void check_maps(std::string_view model) {
  constexpr std::uint64_t kNormalizer = 3, kDenormalizer = 5, kMap = 2;  // in sentencepiece_model.proto
  for (ProtocolBufferFields part(model); part.next();) {
    if (part.number != kNormalizer && part.number != kDenormalizer) continue;
    for (ProtocolBufferFields of(part.content); of.next();)
      if (of.number == kMap && !of.content.empty()) tokenizer_json::CharactersMap{of.content};
  }
}

}  // namespace

SentencePieceModel::SentencePieceModel(std::string content, const std::string& name)
    : content_(std::move(content)) {
  try {
    check_maps(content_);
    const auto status = library_.LoadFromSerializedProto(content_);
    if (!status.ok()) throw std::runtime_error(status.ToString());
    for (std::int32_t id = 0; id < library_.GetPieceSize(); ++id)
      if (find_invalid_utf8(library_.IdToPiece(id)) != std::string::npos)
        throw std::runtime_error("it has a piece that is not UTF-8");
  } catch (const tokenizer_json::UnsupportedPart& part) {
    throw DataError(name, 0, "is not a SentencePiece model: it has " + part.what);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // the library throws exceptions of its own types
    throw DataError(name, 0, std::string("is not a SentencePiece model: ") + error.what());
  }
}

std::vector<std::int32_t> SentencePieceModel::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  check(library_.Encode({text.data(), text.size()}, &ids));
  return ids;
}

std::vector<std::string> SentencePieceModel::pieces(std::string_view text) const {
  std::vector<std::string> pieces;
  check(library_.Encode({text.data(), text.size()}, &pieces));
  return pieces;
}

std::string SentencePieceModel::decode(const std::vector<std::int32_t>& ids) const {
  std::string text;
  check(library_.Decode(ids, &text));
  return text;
}

std::string SentencePieceModel::text_of(std::int32_t id) const {
  if (library_.IsControl(id)) return {};
  if (library_.IsUnknown(id)) return decode({id});  // the model chooses the character
  std::string text = library_.IdToPiece(id);
  if (library_.IsByte(id)) return std::string(1, static_cast<char>(std::stoi(text.substr(3), nullptr, 16)));
  return with_spaces(std::move(text));
}

std::string train_sentencepiece(std::unordered_map<std::string, std::string> options,
                                const std::vector<std::string>& sentences) {
  for (const std::string& sentence : sentences) check_utf8(sentence, "SentencePiece");
  // With one thread the model is a function of the sentences alone. The identity normalisation and keeping
  // every space make decoding exact.
  options.insert({{"normalization_rule_name", "identity"},
                  {"remove_extra_whitespaces", "false"},
                  {"hard_vocab_limit", "false"},
                  {"max_sentence_length", "65535"},  // the library numbers places in a word by 16 bits
                  {"num_threads", "1"},
                  {"minloglevel", "2"}});
  Sentences iterator(sentences);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(options, &iterator, &model);
  if (!status.ok())
    throw DataError(
        format("[tokenizer] SentencePiece cannot learn {} pieces from {}: {}; try another vocabulary size",
               options["vocab_size"], number_of(sentences.size(), "sentence"), status.ToString()));
  return model;
}

}  // namespace tapeformer
