#pragma once

#include <tapeformer/examples/translation/data.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <string>
#include <vector>

namespace tapeformer {

class Command;

/// The pieces of `count` tokens, `ids` and the end, as a reader expects them: " house" for "▁house".
std::vector<std::string> pieces_of(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids,
                                   Index count);

/// The cross-attention weights of all decoder layers, each [1, H, T, S].
std::vector<Tensor> cross_attention_weights(const EncoderDecoder& model,
                                            const std::vector<std::int32_t>& source,
                                            const std::vector<std::int32_t>& target, std::int32_t begin,
                                            std::int32_t end);
/// A decoder layer's attention weights to the source while the model writes `target` and its end.
/// Shapes:  weights [H, T, S]: S source tokens and the end, T target tokens and the end, within max_length
Tensor cross_attention_weights(const EncoderDecoder& model, const std::vector<std::int32_t>& source,
                               const std::vector<std::int32_t>& target, Index layer,
                               std::int32_t begin = kBegin, std::int32_t end = kEnd);

/// Pictures of the decoder's attention to the source, with the options of `translate --heatmap`.
struct TranslationHeatMap {
  std::string file;               ///< empty for no pictures
  Index layer = -1;               ///< a decoder layer; -1 for the last
  std::string head = "averaged";  ///< a number, "averaged" or "all"

  void add_to(const Command& command);
  /// Throws: Error for a layer or a head that the model does not have
  void check(const EncoderDecoderConfig& model) const;
  /// The file for a line of input: `file` for the first, "name-2.svg" for the second.
  std::string path(Index line) const;
  /// Throws: CheckpointError if the file cannot be written
  void write(const EncoderDecoder& model, const Vocabularies& words, const std::vector<std::int32_t>& source,
             const std::vector<std::int32_t>& target, Index line) const;
};

}  // namespace tapeformer
