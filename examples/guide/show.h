#pragma once

#include <tapeformer/autograd/tensor.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

// Printing for the programs of the guide.

namespace tapeformer {

/// The names of rows or columns.
using Labels = std::vector<std::string>;

/// Prints a matrix [T, S], with a label for every row, and for every column if there are any.
inline void show(const std::string& title, const Tensor& matrix, const Labels& rows,
                 const Labels& columns = {}) {
  std::printf("%-10s", title.c_str());
  for (const std::string& column : columns) std::printf("%8s", column.c_str());
  const auto width = static_cast<std::size_t>(matrix.size(-1));
  for (std::size_t t = 0; t < rows.size(); ++t) {
    std::printf("\n  %-8s", rows[t].c_str());
    for (std::size_t s = 0; s < width; ++s)
      std::printf("%8.2f", matrix.at(static_cast<Index>(t * width + s)));
  }
  std::printf("\n\n");
}

/// The largest |a - b|.
inline double largest_difference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (Index i = 0; i < a.elements(); ++i) largest = std::fmax(largest, std::fabs(a.at(i) - b.at(i)));
  return largest;
}

}  // namespace tapeformer
