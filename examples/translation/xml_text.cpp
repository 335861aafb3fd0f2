#include <tapeformer/examples/translation/xml_text.h>

namespace tapeformer {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

/// Takes one character off the front of `text`; what is no UTF-8 goes byte by byte.
char32_t take_character(std::string_view& text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  char32_t point = length == 1 ? first : first & (0x7FU >> length);
  bool valid = length > 0 && length <= text.size();
  for (std::size_t i = 1; valid && i < length; ++i) {
    valid = (byte(i) & 0xC0U) == 0x80;
    point = point << 6U | (byte(i) & 0x3FU);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  valid = valid && point >= kSmallest[length] && point <= 0x10FFFF && (point < 0xD800 || point > 0xDFFF);
  text.remove_prefix(valid ? length : 1);
  return valid ? point : kReplacement;
}

void append_utf8(std::string& text, char32_t point) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  const auto tail = [&](unsigned shift) { put(0x80 | (point >> shift & 0x3F)); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6U), tail(0);
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12U), tail(6), tail(0);
  } else {
    put(0xF0 | point >> 18U), tail(12), tail(6), tail(0);
  }
}

/// What is shown for a character.
char32_t visible(char32_t point) {
  if (point < 0x20) return 0x2400 + point;
  if (point == 0x7F) return 0x2421;
  // The C1 controls, the two that XML forbids, and those that turn the direction of what follows.
  const bool hidden = (point >= 0x80 && point < 0xA0) || (point & 0xFFFE) == 0xFFFE ||
                      (point >= 0x202A && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
  return hidden ? kReplacement : point;
}

const char* entity(char32_t point) {
  switch (point) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&apos;";
    default: return nullptr;
  }
}

double width_of(char32_t point) {
  constexpr std::string_view kNarrow = "iljftrI.,:;!|'()[]";
  if (point < 0x80 && kNarrow.find(static_cast<char>(point)) != std::string_view::npos) return 0.42;
  if (point == 'm' || point == 'w' || point == 'M' || point == 'W') return 1;
  const bool wide = (point >= 0x1100 && point <= 0x115F) || (point >= 0x2400 && point <= 0x2426) ||
                    (point >= 0x2E80 && point <= 0xD7A3) || (point >= 0xF900 && point <= 0xFAFF) ||
                    (point >= 0xFE30 && point <= 0xFE6F) || point == kReplacement ||
                    (point >= 0xFF00 && point <= 0xFF60) || point >= 0x10000;
  return wide ? 1.05 : point >= 'A' && point <= 'Z' ? 0.75 : 0.66;
}

}  // namespace

XmlText::XmlText(std::string_view text, std::size_t longest) {
  std::size_t characters = 0, cut = 0;  // where `escaped` is cut when there is one character too many
  while (!text.empty()) {
    if (++characters == longest) cut = escaped.size();
    if (characters > longest) {
      escaped.resize(cut);
      escaped += "…";
      return;
    }
    char32_t point = visible(take_character(text));
    if (point == ' ' && (characters == 1 || text.empty())) point = 0xB7;
    if (const char* name = entity(point)) {
      escaped += name;
    } else {
      append_utf8(escaped, point);
    }
    width += width_of(point);
  }
}

std::vector<XmlText> xml_lines(std::string_view text, double widest) {
  std::vector<XmlText> lines;
  while (!text.empty()) {
    std::size_t fits = 0, space = 0;  // bytes that fit in the line, and that stand before its last space
    double width = 0;
    for (std::string_view rest = text; !rest.empty(); fits = text.size() - rest.size()) {
      const char32_t point = visible(take_character(rest));
      if (point == ' ') space = fits;
      width += width_of(point);
      if (width > widest && fits > 0) break;
    }
    const std::size_t end = fits < text.size() && space > 0 ? space : fits;
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    if (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  }
  return lines;
}

}  // namespace tapeformer
