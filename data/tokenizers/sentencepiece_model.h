#pragma once

#include <sentencepiece_processor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

// Models of the SentencePiece library; for sources only.
namespace tapeformer {

/// A model with its own ids. The library checks the file.
class SentencePieceModel {
 public:
  /// `content` is that of a model file. Throws: DataError naming `name` if it is not
  SentencePieceModel(std::string content, const std::string& name);

  /// Throws:  DataError with the library's reason
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// The pieces as texts, unknown ones included.
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

/// Trains a model that keeps text as it is, with further `options` of the library's trainer, and returns the
/// model file's content. The same sentences in the same order give the same model.
/// Throws:  DataError if the sentences cannot fill a vocabulary of that size
std::string train_sentencepiece(std::unordered_map<std::string, std::string> options,
                                const std::vector<std::string>& sentences);

}  // namespace tapeformer
