#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// A step and its loss.
using LossPoints = std::vector<std::pair<double, double>>;

/// The losses drawn with characters, at most `columns` wide, in `rows` lines and one with the steps below; no
/// lines if that is too small or there are fewer than two points. With `unicode` a curve consists of dots in
/// Braille patterns, else of "."; validations are "o".
std::vector<std::string> loss_plot(const LossPoints& training, const LossPoints& validations, int columns,
                                   int rows, bool unicode);

/// True if the environment names a locale in UTF-8.
bool terminal_takes_unicode();

}  // namespace tapeformer
