#pragma once

#include <tapeformer/autograd/tensor.h>

#include <string>

namespace tapeformer {

/// Reads an array that numpy.save or save_npy wrote: f32, f64, i32 or bool, little-endian, in C order.
/// Throws:  DataError saying what is wrong with the file
/// Source:  NumPy Enhancement Proposal 1, "A simple file format for NumPy arrays"
Tensor load_npy(const std::string& path);

/// Writes a file that numpy.load reads.
/// Throws:  DataError if it cannot be written
void save_npy(const std::string& path, const Tensor& x);

}  // namespace tapeformer
