#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

/// Any bytes as text that may stand in an XML element or attribute: markup is escaped, a space at either end
/// becomes "·", control characters their symbols ("␀", "␉"), and what is not UTF-8 or not allowed in XML "�".
struct XmlText {
  /// Beyond `longest` characters the text is cut and ends in "…".
  explicit XmlText(std::string_view text, std::size_t longest = std::string::npos);

  std::string escaped;
  double width = 0;  ///< about how wide it is in a sans-serif font, in units of the font size
};

/// All of it, in lines no wider than `widest`, which end at a space where they have one.
std::vector<XmlText> xml_lines(std::string_view text, double widest);

}  // namespace tapeformer
