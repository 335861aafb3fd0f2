#pragma once

#include <tapeformer/data/tokenizers/json/added.h>
#include <tapeformer/data/tokenizers/sentencepiece_model.h>
#include <tapeformer/data/tokenizers/tokenizer.h>

// For sources only.
namespace tapeformer {

/// Pieces of a SentencePiece model with other ids than the model's, and control tokens, whose names are
/// tokens in every text. Decoding stops at the end token, and drops control tokens and white space at both
/// ends.
class NumberedPieces : public Tokenizer {
 public:
  /// Pieces and tokens with their ids.
  struct Vocabulary {
    std::vector<std::string> pieces = {};     ///< by id; "" for an id without a piece
    std::int32_t unknown = 0;                 ///< replaces pieces without an id
    std::int32_t end = 0;                     ///< ends a sentence
    std::int32_t padding = 0;                 ///< fills batches
    std::vector<std::int32_t> controls = {};  ///< the three above, and further control tokens
    std::optional<std::int32_t> begin = {};   ///< first in the input of a decoder
    std::string language = {};                ///< such as "en"
  };

  /// `model` is the content of a model file. Throws: DataError naming `name` if it is anything else
  NumberedPieces(Vocabulary vocabulary, std::string model, const std::string& name);

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
  using Tokenizer::encode;
  std::string bytes_of(std::int32_t id) const override;
  std::string decode(const std::vector<std::int32_t>& ids) const override;
  Index vocabulary_size() const override { return static_cast<Index>(words_.pieces.size()); }
  std::string piece(std::int32_t id) const override;
  std::int32_t padding() const override { return words_.padding; }
  std::optional<std::int32_t> begin() const override { return words_.begin; }
  std::optional<std::int32_t> end() const override { return words_.end; }
  std::optional<std::int32_t> find(const std::string& token) const override;
  const char* kind() const override { return "pieces"; }
  std::string serialize() const override { return {}; }  // files hold it as a part of other kinds

  /// The pieces by their ids.
  const Vocabulary& vocabulary() const { return words_; }
  /// The content of the model's file.
  const std::string& model() const { return model_.content(); }

 protected:
  /// Appends the ids of a text without names of control tokens.
  virtual void append_pieces(std::string_view text, std::vector<std::int32_t>& ids) const;
  /// Appends the id of a piece, or the unknown id if it has none.
  void append_piece(const std::string& piece, std::vector<std::int32_t>& ids) const;

 private:
  Vocabulary words_;
  SentencePieceModel model_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::optional<tokenizer_json::AddedTokens> controls_;
};

/// A model's pieces by its own ids.
std::vector<std::string> pieces_of(const SentencePieceModel& model);

/// The pieces by id of a file that maps pieces to ids. Throws: DataError naming the file `name`
std::vector<std::string> pieces_by_id(const nlohmann::json& ids, const std::string& name);

}  // namespace tapeformer
