#pragma once

#include <tapeformer/nn/formats/layouts.h>
#include <tapeformer/nn/module.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// How another program stores its tensors; flags are joined by |.
enum TensorForm : unsigned {
  kAllBiases = 1,       ///< all norms and linear layers have biases, with zeros where ours have none
  kTransposed = 2,      ///< matrices of linear layers are [in, out]
  kInterleaved = 4,     ///< rotary positions rotate rows (2i, 2i + 1) of queries and keys, not (i, i + D/2)
  kGainsLessOne = 8,    ///< gains of norms are stored less 1
  kRows = 16,           ///< vectors are rows [1, N]
  kTiedByWeights = 32,  ///< a head is tied only if its weights are the embedding's, whatever config.json says
  kByHead = 64,         ///< one matrix has the query, key and value of each head in turn
  kOldNorms = 128,      ///< weights and biases of norms may be called gamma and beta instead
  kRatesByHead = 256,   ///< rates of decays are [1, 1, H, 1]
};

/// The names of tensors whose rows, one tensor below the other, are one of our parameters. They are without
/// ".weight" and ".bias", or, if ours has one of these or another end, whole, and a bias is a row [1, N],
/// unless theirs ends with ".bias" too. In both, * is the number of the layer, and in theirs # that of an
/// expert, whose rows follow those of the one before. In ours, D or F in place of * is the number of a layer
/// with this letter in attention_pattern. A tensor of several names has the rows of each of them for the
/// first head, then for the second, and so on.
struct TensorName {
  std::string ours;
  std::vector<std::string> theirs;
  std::size_t blocks = 0;  ///< the names are for a parameter of this many blocks of rows; 0 for any
  std::vector<std::string> same = {};  ///< tensors that are, or may be in place of, the only one
  std::string needs = {};              ///< the names are for models, or layers, with this parameter of ours
  /// One tensor [E, in, out] of all experts has this whole name, and that of their biases "_bias" after it;
  /// the columns of this many blocks of our rows alternate in it. 0 for others.
  std::size_t stacked = 0;
};

/// The names of a family of models in a format. Those that our model lacks are skipped, and a parameter has
/// the first of its names whose needs are met.
struct TensorNames {
  std::vector<TensorName> list;  ///< in the order of files, a layer's together
  /// Endings of names in some files that no model needs, or with a dot at the end beginnings.
  std::vector<std::string> constants = {};
  unsigned form = 0;                  ///< TensorForm
  Index unused_positions = 0;         ///< rows of tables of positions before the first used one
  Index first_layer = 0;              ///< the number of the first layer
  std::string shared_embedding = {};  ///< of an encoder and its decoder, if it has a name of its own
  std::string optional = {};          ///< a tensor that files may lack, which is zeros then
  std::string part_prefix = {};       ///< in place of prefix() in files of a part of a larger model
  /// A part of names, and what some files have in its place.
  std::pair<std::string, std::string> synonym = {};

  bool has(TensorForm flag) const { return (form & flag) != 0; }
  /// The weight of a part outside the layers, "embedding" or "head".
  std::string weight(const std::string& ours) const;
  /// The prefix of all names except the head's, "transformer.", which models without a head lack.
  std::string prefix() const;
  /// True for one of `constants`: a mask, rotary frequencies.
  bool is_constant(const std::string& name) const;
};

/// Another program's tensor, and its rows in one of our parameters.
struct ForeignPart {
  std::string name;
  Shape shape;  ///< in the other program
  std::vector<RowBlock> blocks;
  bool transposed = false;  ///< [in, out] there, [out, in] here
  double less = 0;          ///< ours minus theirs
  bool is_row = false;      ///< a vector, [1, N] there
  Index unused = 0;         ///< rows before the first used one
  /// Their rows are `outer` groups of `inner` blocks, ours `inner` groups of `outer` blocks.
  Index outer = 1, inner = 1;
  Index taps = 0;  ///< K of a convolution, [N, 1, K] there; the last tap is the token's own, and ours plus 1
  /// In a tensor of several parts, `heads` groups of rows, the part's after the first `before` of each.
  Index heads = 0, before = 0;
  /// In one tensor of all experts, [E, in, out] there: E, and the blocks whose columns alternate.
  Index experts = 0, alternating = 1;

  /// The number of its rows in our parameter.
  Index rows() const {
    Index sum = 0;
    for (const RowBlock& block : blocks) sum += block.rows;
    return sum;
  }
};

/// One of our parameters, and its parts from top to bottom.
struct ForeignParameter {
  std::string name;
  std::vector<ForeignPart> parts;
  std::vector<std::string> same = {};  ///< tensors tied to the only part, which may replace it
};

/// The tensors of every parameter of a model; tied ones are in `same`.
std::vector<ForeignParameter> foreign_parameters(const TensorNames& names, const Layouts& model);

/// Converts another program's tensor. The order of heads' rows stays: a loaded model keeps its layout.
Tensor to_ours(const ForeignPart& part, const Tensor& theirs);
/// Fills the parameters of a model with the tensors that tensor_of(part) gives for each part.
/// Throws:  CheckpointError naming a parameter that has no source
void fill_parameters(Module& model, const std::vector<ForeignParameter>& sources,
                     const std::function<Tensor(const ForeignPart& part)>& tensor_of);
/// A tensor's rows in the other program's order, or a part of these, as rows of the model.
Tensor rows_to_ours(const TensorNames& names, const Layouts& layouts, const ForeignPart& part,
                    const Tensor& theirs);
/// The rows of one of our parameters part by part, in the other program's order.
TensorList rows_of_parts(const TensorNames& names, const Layouts& layouts, const ForeignParameter& parameter,
                         const Tensor& ours);
/// All tensors of a model in the other program's form.
/// Throws:  CheckpointError naming a parameter that only one of the two has
std::vector<std::pair<std::string, Tensor>> foreign_tensors(const TensorNames& names, const Layouts& layouts,
                                                            Module& model);

}  // namespace tapeformer
