#include <tapeformer/data/tokenizers/utf8.h>
#include <tapeformer/examples/translation/xml_text.h>

namespace tapeformer {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

/// A character as it is shown.
struct Character {
  char32_t point;
  std::string utf8;
};

/// Takes one character off the front of `text`; what is not UTF-8 goes byte by byte.
Character take_character(std::string_view& text) {
  const Utf8Step step = next_utf8(text);
  const bool valid = step.kind == Utf8Step::whole;
  const std::string_view bytes = text.substr(0, valid ? step.length : 1);
  const char32_t point = valid ? decode_code_point(text) : kReplacement;
  text.remove_prefix(bytes.size());
  if (point < 0x20 || point == 0x7F) {  // the control's symbol, U+2400 to U+2421
    const auto last = static_cast<char>(point < 0x20 ? 0x80 + point : 0xA1);
    return {point < 0x20 ? 0x2400 + point : 0x2421, std::string("\xE2\x90") + last};
  }
  // The C1 controls, the two that XML forbids, and those that turn the direction of what follows.
  const bool hidden = (point >= 0x80 && point < 0xA0) || (point & 0xFFFE) == 0xFFFE ||
                      (point >= 0x202A && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
  if (hidden || !valid) return {kReplacement, "�"};
  return {point, std::string(bytes)};
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
  std::size_t characters = 0, cut = 0;  // `cut` is where the ellipsis goes
  while (!text.empty()) {
    if (++characters == longest) cut = escaped.size();
    if (characters > longest) {
      escaped.resize(cut);
      escaped += "…";
      return;
    }
    Character shown = take_character(text);
    if (shown.point == ' ' && (characters == 1 || text.empty())) shown = {0xB7, "·"};
    const char* const name = entity(shown.point);
    escaped += name != nullptr ? name : shown.utf8;
    width += width_of(shown.point);
  }
}

std::vector<XmlText> xml_lines(std::string_view text, double widest) {
  std::vector<XmlText> lines;
  while (!text.empty()) {
    std::size_t fits = 0, space = 0;  // the bytes that fit into the line, and those before its last space
    double width = 0;
    for (std::string_view rest = text; !rest.empty(); fits = text.size() - rest.size()) {
      const char32_t point = take_character(rest).point;
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
