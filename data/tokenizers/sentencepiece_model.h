#pragma once

#include <sentencepiece_processor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

// Models of the SentencePiece library; for sources only.
namespace tapeformer {

/// A SentencePiece model with its own ids.
class SentencePieceModel {
 public:
  /// `content` is that of a model file. Throws: DataError naming `name` if it is anything else
  SentencePieceModel(std::string content, const std::string& name);

  /// The ids of a text. Throws: DataError with the library's reason
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// The pieces of a text, unknown ones included.
  std::vector<std::string> pieces(std::string_view text) const;
  std::string decode(const std::vector<std::int32_t>& ids) const;
  /// The bytes that a piece adds within a text; none for control pieces.
  std::string text_of(std::int32_t id) const;

  const sentencepiece::SentencePieceProcessor& library() const { return library_; }
  const std::string& content() const { return content_; }

 private:
  sentencepiece::SentencePieceProcessor library_;
  std::string content_;
};

/// Trains a model that keeps text as it is unless `options` of the library's trainer say otherwise, and
/// returns the model file's content. Sentences that cannot fill the vocabulary give a smaller one. The same
/// sentences in the same order give the same model. Sentences over 65,535 bytes are ignored.
/// Throws:  DataError with the library's reason, or if a sentence is not UTF-8
std::string train_sentencepiece(std::unordered_map<std::string, std::string> options,
                                const std::vector<std::string>& sentences);

}  // namespace tapeformer
