#pragma once

#include <tapeformer/autograd/tensor.h>

#include <string>
#include <vector>

namespace tapeformer {

struct HeatMapOptions {
  bool averaged = true;  ///< averages the heads; otherwise each has a panel
  std::string title;     ///< above the panels, cut to 120 characters; empty for none
};

/// Draws attention weights, with a cell for every pair: queries go down, keys to the right. All panels share
/// one colour scale from 0 to the largest weight, of evenly falling lightness. A cell's tooltip shows its
/// tokens and weight. Labels and title may hold any bytes: a space at either end shows as "·", control
/// characters as their symbols, and as "�" what is not UTF-8, not allowed in XML, or changes the writing
/// direction. Long texts are cut; tooltips show them whole.
/// Shapes:  weights [T, S] or [H, T, S], f32 or f64; T row and S column labels
/// Throws:  ShapeError if labels and weights do not fit, Error for a weight that is negative or not finite
/// Source:  the picture: Bahdanau et al. 2015, arXiv:1409.0473, figure 3;
///          the colours: Oklab, Ottosson 2020, https://bottosson.github.io/posts/oklab/
std::string heat_map_svg(const Tensor& weights, const std::vector<std::string>& rows,
                         const std::vector<std::string>& columns, const HeatMapOptions& options = {});

/// Writes the picture to a file, whole or not at all.
/// Throws:  as above, and CheckpointError if the file cannot be written
void write_heat_map(const std::string& path, const Tensor& weights, const std::vector<std::string>& rows,
                    const std::vector<std::string>& columns, const HeatMapOptions& options = {});

}  // namespace tapeformer
