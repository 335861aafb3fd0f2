#pragma once

#include <tapeformer/nn/transformer/decoder_only_config.h>
#include <tapeformer/nn/transformer/encoder_decoder_config.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// Rows of one of our parameters: of all heads of queries or keys, or without heads.
struct RowBlock {
  Index rows;       ///< of all heads
  Index heads = 0;  ///< H, or 0
  Index pairs = 0;  ///< of heads of differential attention; elsewhere the second ones follow all first ones
};

/// The rows and columns of one of our parameters; a gain has no columns.
struct Layout {
  std::vector<RowBlock> blocks;  ///< one below the other
  Index columns = 0;             ///< of each row; 0 for a vector
  bool is_linear = false;        ///< the weight of a linear map, which some families store transposed
  bool bias = false;             ///< a linear map has a bias
};

/// The parameters of a model, by names without ".weight" and ".bias".
struct Layouts {
  std::map<std::string, Layout> parameters;               ///< by name, with * for the layer's number
  std::map<std::string, Index> layers;                    ///< number of layers, by the name before *
  std::vector<std::pair<std::string, std::string>> ties;  ///< a name, and the parameter it is tied to
  bool shares_embeddings = false;                         ///< between an encoder and its decoder
  std::optional<RotaryLayout> rotary = {};                ///< of rotary positions, if any
  std::string absent = {};                                ///< one that its layer lacks, with its number
};
/// The layouts of a language model.
Layouts layouts_of(const DecoderOnlyConfig& config);
/// The layouts of a translation model.
Layouts layouts_of(const EncoderDecoderConfig& config);

}  // namespace tapeformer
