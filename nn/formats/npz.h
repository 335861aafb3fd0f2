#pragma once

#include <tapeformer/autograd/shape.h>

#include <map>
#include <string>

namespace tapeformer {

/// An array of NumPy, its rows one after the other.
struct NpzArray {
  std::string type;  ///< "<f4" for floats, "|i1" for bytes
  Shape shape;       ///< {} for a scalar
  std::string data;  ///< as bytes
};
/// Arrays by name, without ".npy".
using NpzArrays = std::map<std::string, NpzArray>;

/// The arrays of a zip archive without compression, as numpy.savez and Marian write it.
/// Throws:  CheckpointError naming the file, and the array that is damaged, compressed or of another type
/// Source:  the documentation of numpy.lib.format, and PKWARE's APPNOTE.TXT
NpzArrays load_npz(const std::string& path);

/// The inverse of load_npz().
/// Throws:  CheckpointError if the file cannot be written, or would exceed 4 GiB or 65,535 arrays
void save_npz(const std::string& path, const NpzArrays& arrays);

}  // namespace tapeformer
