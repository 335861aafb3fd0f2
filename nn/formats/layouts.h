#pragma once

#include <tapeformer/nn/transformer/decoder_only_config.h>
#include <tapeformer/nn/transformer/encoder_decoder_config.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// Rows of a parameter of ours: of all heads of queries or keys, or without heads.
struct RowBlock {
  Index rows, heads = 0;
};

/// A parameter of ours: its rows and columns, of which a gain has none.
struct Layout {
  std::vector<RowBlock> blocks;
  Index columns = 0;
  bool is_linear = false, bias = false;
};

/// The parameters of a model, without ".weight" and ".bias".
struct Layouts {
  std::map<std::string, Layout> parameters;               ///< a * for the number of the layer
  std::map<std::string, Index> layers;                    ///< their number, by the names before the *
  std::vector<std::pair<std::string, std::string>> ties;  ///< a table, and the parameter that it is
  bool shares_embeddings = false;                         ///< of an encoder and its decoder
  std::optional<RotaryLayout> rotary = {};                ///< of rotary positions, where there are any
};
Layouts layouts_of(const DecoderOnlyConfig& config);
Layouts layouts_of(const EncoderDecoderConfig& config);

}  // namespace tapeformer
