#pragma once

#include <tapeformer/examples/translation/data.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <string>
#include <vector>

namespace tapeformer {

class Command;

/// What a decoder layer's attention to the source weighs when the model writes `target` and then ends.
/// Shapes:  weights [H, T, S]: S source tokens and the end, T target tokens and the end, within max_length
Tensor cross_attention_weights(const EncoderDecoder& model, const std::vector<std::int32_t>& source,
                               const std::vector<std::int32_t>& target, Index layer);

/// Pictures of what the decoder attends to in the source: the options of `translate --heatmap`.
struct TranslationHeatMap {
  std::string file;               ///< no pictures when empty
  Index layer = -1;               ///< of the decoder; -1 for the last
  std::string head = "averaged";  ///< a number, "averaged" or "all"

  void add_to(const Command& command);
  /// Throws: Error for a layer or a head that the model does not have
  void check(const EncoderDecoderConfig& model) const;
  /// The file for the sentence of a line: `file` for the first, "name-2.svg" for the second.
  std::string path(Index line) const;
  /// Throws: CheckpointError if the file cannot be written
  void write(const EncoderDecoder& model, const Vocabularies& words, const std::vector<std::int32_t>& source,
             const std::vector<std::int32_t>& target, Index line) const;
};

}  // namespace tapeformer
