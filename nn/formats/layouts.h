#pragma once

#include <tapeformer/autograd/ops/rotary.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

class DecoderOnly;
class EncoderDecoder;

/// Rows of one of our parameters: of all heads of queries or keys, or without heads.
struct RowBlock {
  Index rows;       ///< of all heads
  Index heads = 0;  ///< H, or 0
  Index pairs = 0;  ///< of heads (differential attention); elsewhere all first ones precede all second ones
};

/// The rows and columns of one of our parameters; a gain has no columns.
struct Layout {
  std::vector<RowBlock> blocks = {};  ///< one below the other
  Index columns = 0;                  ///< of each row; 0 for a vector
  bool is_linear = false;             ///< the weight of a linear map, which some families store transposed
  bool is_gain = false;               ///< the gain of a norm, which some families store less 1
  Index heads = 0;  ///< of the first block; some tensors hold the rows of several parameters by head
  Index taps = 0;   ///< K of a short convolution [K N], whose blocks are of its N columns
};

/// The parameters of a model.
struct Layouts {
  std::map<std::string, Layout> parameters = {};  ///< by path; of tied ones the first
  std::map<std::string, Index> layers = {};       ///< number of layers, by the path before the number
  /// A module or parameter, and the one that it is tied to.
  std::vector<std::pair<std::string, std::string>> ties = {};
  bool shares_embeddings = false;           ///< between an encoder and its decoder
  std::optional<RotaryLayout> rotary = {};  ///< of rotary positions, if any
  std::string letters = {};                 ///< of each layer in attention_pattern, or none
};
/// The layouts of a language model.
Layouts layouts_of(DecoderOnly& model);
/// The layouts of a translation model, without heads.
Layouts layouts_of(EncoderDecoder& model);

}  // namespace tapeformer
