#pragma once

#include <tapeformer/nn/transformer/decoder_only_config.h>
#include <tapeformer/nn/transformer/encoder_decoder_config.h>

#include <functional>
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
  bool is_gain = false;          ///< the gain of a norm, which some families store less 1
  Index heads = 0;  ///< of the first block; some tensors hold the rows of several parameters by head
  Index taps = 0;   ///< K of a short convolution [K N], whose blocks are of its N columns
  std::function<bool(Index layer)> in_layer = {};  ///< true for the layers that have it; empty for all
  std::vector<Layout> others = {};                 ///< the layout in the other layers, if they have one
};

/// The parameters of a model, by names without ".weight" and ".bias".
struct Layouts {
  /// By name, with * for the layer's number, or D or F for that of a layer with this letter.
  std::map<std::string, Layout> parameters;
  std::map<std::string, Index> layers;                    ///< number of layers, by the name before *
  std::vector<std::pair<std::string, std::string>> ties;  ///< a name, and the parameter it is tied to
  bool shares_embeddings = false;                         ///< between an encoder and its decoder
  std::optional<RotaryLayout> rotary = {};                ///< of rotary positions, if any
  std::string letters = {};                               ///< of each layer in attention_pattern, or none

  /// The layout of a parameter in a layer; nullptr if it has none of this name.
  const Layout* find(const std::string& name, Index layer) const;
};
/// The layouts of a language model.
Layouts layouts_of(const DecoderOnlyConfig& config);
/// The layouts of a translation model.
Layouts layouts_of(const EncoderDecoderConfig& config);

}  // namespace tapeformer
