#pragma once

#include <tapeformer/autograd/shape.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tapeformer {

/// A value of Python.
struct PickleValue {
  /// The type; `other` is anything that tensors are not made from.
  enum class Kind { other, number, text, name, tuple, tensor };

  Kind kind = Kind::other;  ///< says which of the members count
  Index number = 0;         ///< of a number: 0 unless it is a whole one below 2^63
  std::string text = {};    ///< of a text, or the name of a function or class, "torch FloatStorage"
  std::vector<std::shared_ptr<const PickleValue>> items = {};  ///< of a tuple, or what a tensor is made from
  int depth = 0;                                               ///< of tuples in one another
};
/// Values are shared, as in Python.
using PickleValuePtr = std::shared_ptr<const PickleValue>;

/// The values in a file of Python's pickle, in the part of it that torch.save uses for tensors by name.
/// No function is called: a tensor is known by the arguments of torch._utils._rebuild_tensor_v2.
struct Pickle {
  std::vector<std::pair<std::string, PickleValuePtr>> tensors;  ///< of all dictionaries, with their keys
  std::vector<PickleValuePtr> listed;                           ///< the items of all lists
  std::vector<PickleValuePtr> objects;  ///< the tuples that stand for persistent objects
  std::size_t end = 0;                  ///< in the bytes

  /// Throws:  CheckpointError if the program is damaged, or makes something else
  /// Source:  the comments in Lib/pickletools.py of Python
  static Pickle read(std::string_view bytes, std::size_t at = 0);
};

}  // namespace tapeformer
