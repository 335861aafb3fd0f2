#pragma once

#include <tapeformer/examples/translation/data.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <string>
#include <vector>

namespace tapeformer {

class Command;

/// The pieces of tokens in readable form: " house" for "▁house".
std::vector<std::string> pieces_of(const Tokenizer& tokenizer, const TokenIds& ids);

/// The cross-attention weights of all decoder layers, each [1, H, T, S], for the S tokens of `source` and the
/// first T tokens of `target`, both with their end tokens; T is at most max_length.
std::vector<Tensor> cross_attention_weights(const EncoderDecoder& model, const TokenIds& source,
                                            TokenIds target, std::int32_t begin);

/// Pictures of the decoder's attention to the source, with the options of `translate --heatmap`.
struct TranslationHeatMap {
  std::string file;               ///< of the first picture; empty for none
  Index layer = -1;               ///< a decoder layer; -1 for the last
  std::string head = "averaged";  ///< a number, "averaged" or "all"

  void add_to(const Command& command);
  /// Throws: Error for what the model lacks or cannot show; CheckpointError if `file` cannot be written
  void check(const EncoderDecoderConfig& model) const;
  /// The file for a line of input: `file` for the first, "name-2.svg" for the second.
  std::string path(Index line) const;
  /// Writes a picture of a source and a target without their frames. Throws: CheckpointError if that fails
  void write(const EncoderDecoder& model, const Vocabularies& words, const TokenIds& source,
             const TokenIds& target, Index line) const;
};

}  // namespace tapeformer
