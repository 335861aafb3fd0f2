#pragma once

#include <tapeformer/autograd/shape.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tapeformer {

/// A Python value.
struct PickleValue {
  /// The type; `other` is irrelevant to tensors.
  enum class Kind { other, number, text, name, tuple, tensor };

  Kind kind = Kind::other;  ///< decides which of the members count
  Index number = 0;         ///< 0 unless the number is whole and below 2^63
  std::string text = {};    ///< a text, or the name of a function or class, "torch FloatStorage"
  std::vector<std::shared_ptr<const PickleValue>> items = {};  ///< of a tuple, or the arguments of a tensor
  int depth = 0;                                               ///< of nested tuples
};
/// Values are shared, as in Python.
using PickleValuePtr = std::shared_ptr<const PickleValue>;

/// The values in a file of Python's pickle, as far as torch.save uses it for named tensors. No function is
/// called: a tensor is known by the arguments of torch._utils._rebuild_tensor_v2.
struct Pickle {
  std::vector<std::pair<PickleValuePtr, PickleValuePtr>> tensors;  ///< of all dictionaries, after their keys
  std::vector<PickleValuePtr> listed;                              ///< the items of all lists
  std::vector<PickleValuePtr> objects;  ///< the tuples that represent persistent objects
  std::size_t end = 0;                  ///< the offset after the program

  /// Throws:  CheckpointError if the program is damaged, or makes something else
  /// Source:  the comments in Lib/pickletools.py of Python
  static Pickle read(std::string_view bytes, std::size_t at = 0);
};

}  // namespace tapeformer
