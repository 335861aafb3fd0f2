#pragma once

#include <tapeformer/autograd/tensor.h>

#include <string>
#include <vector>

namespace tapeformer {

struct HeatMapOptions {
  bool averaged = true;  ///< over the heads; else one panel a head
  std::string title;     ///< above everything, in as many lines as it takes; none when empty
};

/// Attention weights as a picture, a cell for every pair: queries downwards, keys to the right. One colour
/// scale from 0 to the largest weight serves all panels; its lightness falls evenly. Pointing at a cell shows
/// its tokens and its weight. Labels may hold any bytes: a space at either end shows as "·", control
/// characters as their symbols, what is not UTF-8 as "�"; long ones are cut, and shown whole when pointed at.
/// Shapes:  weights [T, S] or [H, T, S], f32 or f64; T row and S column labels
/// Throws:  ShapeError if labels and weights do not fit, Error for a weight that is negative or not finite
/// Source:  such pictures: Bahdanau et al. 2015, arXiv:1409.0473, figure 3;
///          the colours' lightness: Oklab, Ottosson 2020, https://bottosson.github.io/posts/oklab/
std::string heat_map_svg(const Tensor& weights, const std::vector<std::string>& rows,
                         const std::vector<std::string>& columns, const HeatMapOptions& options = {});

/// The same as a file, which is replaced whole or not at all.
/// Throws:  as above, and CheckpointError if the file cannot be written
void write_heat_map(const std::string& path, const Tensor& weights, const std::vector<std::string>& rows,
                    const std::vector<std::string>& columns, const HeatMapOptions& options = {});

}  // namespace tapeformer
