#pragma once

#include <tapeformer/nn/formats/layouts.h>
#include <tapeformer/nn/module.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// How another program stores its tensors; several are joined by |.
enum TensorForm : unsigned {
  kAllBiases = 1,     ///< norms and linear layers have biases, which are zeros where ours have none
  kTransposed = 2,    ///< matrices of linear layers are [in, out]
  kInterleaved = 4,   ///< rotary positions rotate rows (2i, 2i + 1) of queries and keys, and not (i, i + D/2)
  kGainsLessOne = 8,  ///< gains of norms are stored less 1
  kRows = 16,         ///< vectors are rows [1, N]
};

/// The names of tensors that are a parameter of ours, one below the other, without ".weight" and ".bias"; or,
/// if ours has one of these, the whole names, of which a bias is a row [1, N]. In both a * is the number of
/// the layer.
struct TensorName {
  std::string ours;
  std::vector<std::string> theirs;
  std::size_t blocks = 0;  ///< the number of blocks of rows for which these are the names; 0 for any
};

/// The names that a family of models has in a format. Those that a model of ours lacks are passed over.
struct TensorNames {
  std::vector<TensorName> list;             ///< in the order of files, a layer's together
  std::vector<std::string> constants = {};  ///< ends of names of masks and frequencies, which some files have
  unsigned form = 0;                        ///< TensorForm
  Index unused_positions = 0;               ///< rows of tables of positions before the first that is used
  Index first_layer = 0;                    ///< the number of the first layer
  std::string shared_embedding = {};  ///< that of an encoder and its decoder, if it has a name of its own

  bool has(TensorForm flag) const { return (form & flag) != 0; }
  /// The weight of a part outside the layers, "embedding" or "head".
  std::string weight(const std::string& ours) const;
  /// "transformer.", the beginning of the names of all but the head, which models without a head lack.
  std::string prefix() const;
  /// True for a mask or rotary frequencies.
  bool is_constant(const std::string& name) const;
};

/// A tensor of another program, and its rows in a parameter of ours.
struct ForeignPart {
  std::string name;
  Shape shape;  ///< there
  std::vector<RowBlock> blocks;
  bool transposed = false;  ///< [in, out] there, [out, in] here
  double less = 0;          ///< values there are this much smaller
  bool is_row = false;      ///< a vector, [1, N] there
  Index unused = 0;         ///< rows before the first that is used
};

/// A parameter of ours: the parts, one below the other.
struct ForeignParameter {
  std::string name;
  std::vector<ForeignPart> parts;
  std::vector<std::string> same = {};  ///< tensors that are tied to the only part, and may be in its place
};

/// The tensors of every parameter of a model; those that are tied to others are in their `same`.
std::vector<ForeignParameter> foreign_parameters(const TensorNames& names, const Layouts& model);

/// Converts a tensor of another program. The order of heads' rows stays: a loaded model keeps its layout.
Tensor to_ours(const ForeignPart& part, const Tensor& theirs);
/// Fills the parameters of a model with the tensors that tensor_of(part) gives for each part.
/// Throws:  CheckpointError naming a parameter that has no source
void fill_parameters(Module& model, const std::vector<ForeignParameter>& sources,
                     const std::function<Tensor(const ForeignPart& part)>& tensor_of);
/// All tensors of a model, as the other program has them.
/// Throws:  CheckpointError naming a parameter that only one of the two has
std::vector<std::pair<std::string, Tensor>> foreign_tensors(const TensorNames& names, const Layouts& layouts,
                                                            Module& model);
template <class Model>
std::vector<std::pair<std::string, Tensor>> foreign_tensors(const TensorNames& names, Model& model) {
  return foreign_tensors(names, layouts_of(model.config()), model);
}

}  // namespace tapeformer
