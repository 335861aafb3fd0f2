#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

/// Any bytes as the text of an XML element or attribute: markup is escaped, a space at either end becomes
/// "·", control characters their symbols ("␀", "␉"), and bytes that are not UTF-8 or not allowed in XML "�".
struct XmlText {
  /// Text of more than `longest` characters is cut and ends in "…".
  explicit XmlText(std::string_view text, std::size_t longest = std::string::npos);

  std::string escaped;
  double width = 0;  ///< the approximate width in a sans-serif font, in units of the font size
};

/// Breaks the text into lines no wider than `widest`, at spaces if possible.
std::vector<XmlText> xml_lines(std::string_view text, double widest);

}  // namespace tapeformer
