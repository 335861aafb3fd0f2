#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/report/loss_plot.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace tapeformer {
namespace {

constexpr int kLabel = 9, kLeastColumns = 24, kLeastRows = 3;
constexpr int kDotsAcross = 2, kDotsDown = 4;  // of a Braille pattern

/// The UTF-8 bytes of the Braille pattern U+2800 + dots.
std::string braille(unsigned dots) {
  const unsigned code = 0x2800 + dots;
  return {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

/// The bits of a pattern's dots.
constexpr unsigned kDots[kDotsDown][kDotsAcross] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

}  // namespace

std::vector<std::string> loss_plot(const LossPoints& training, const LossPoints& validations, int columns,
                                   int rows, bool unicode) {
  LossPoints all = training;
  all.insert(all.end(), validations.begin(), validations.end());
  all.erase(std::remove_if(all.begin(), all.end(), [](const auto& p) { return !std::isfinite(p.second); }),
            all.end());
  if (all.size() < 2 || columns < kLeastColumns || rows < kLeastRows) return {};
  const auto [first, last] = std::minmax_element(all.begin(), all.end());
  const auto by_loss = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [least, greatest] = std::minmax_element(all.begin(), all.end(), by_loss);
  const double low = least->second, high = greatest->second, begin = first->first, end = last->first;
  const int width = columns - kLabel - 2;
  const int dots_across = unicode ? kDotsAcross : 1, dots_down = unicode ? kDotsDown : 1;
  const auto place = [](double x, double from, double to, int count) {
    return to > from ? std::clamp(static_cast<int>((x - from) / (to - from) * count), 0, count - 1) : 0;
  };
  std::vector<std::vector<unsigned>> cells(static_cast<std::size_t>(rows),
                                           std::vector<unsigned>(static_cast<std::size_t>(width)));
  const auto cell = [&](int x, int y) -> unsigned& {
    return cells[static_cast<std::size_t>(y)][static_cast<std::size_t>(x)];
  };
  constexpr unsigned kValidation = 0x100;
  for (std::size_t i = 0; i < training.size(); ++i) {
    if (!std::isfinite(training[i].second)) continue;
    const int x = place(training[i].first, begin, end, width * dots_across);
    const int y = place(high - training[i].second, 0, high - low, rows * dots_down);
    // Few points are joined by lines.
    const bool joins =
        i > 0 && std::isfinite(training[i - 1].second) && training[i - 1].first < training[i].first;
    const int from_x = joins ? place(training[i - 1].first, begin, end, width * dots_across) : x;
    const int from_y = joins ? place(high - training[i - 1].second, 0, high - low, rows * dots_down) : y;
    for (int at = from_x; at <= x; ++at) {
      const int down = x > from_x ? from_y + (y - from_y) * (at - from_x) / (x - from_x) : y;
      cell(at / dots_across, down / dots_down) |= kDots[down % dots_down][at % dots_across];
    }
  }
  for (const auto& [step, loss] : validations)
    if (std::isfinite(loss))
      cell(place(step, begin, end, width), place(high - loss, 0, high - low, rows)) |= kValidation;

  std::vector<std::string> lines;
  for (int y = 0; y < rows; ++y) {
    const bool is_labelled = y == 0 || y == rows - 1;
    std::string text = is_labelled ? format("{:9.4g}", y == 0 ? high : low) : std::string(kLabel, ' ');
    text += unicode ? " \u2502" : " |";
    for (int x = 0; x < width; ++x) {
      const unsigned dots = cell(x, y);
      text += (dots & kValidation) != 0 ? "o" : dots == 0 ? " " : unicode ? braille(dots) : ".";
    }
    lines.push_back(text);
  }
  const std::string left = format("step {:.0f}", begin), right = format("{:.0f}", end);
  const auto room = static_cast<std::size_t>(width);
  std::string below(kLabel + 2, ' ');
  below += left;
  if (left.size() + right.size() < room) below += std::string(room - left.size() - right.size(), ' ') + right;
  lines.push_back(below);
  return lines;
}

bool terminal_takes_unicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == 0) continue;
    std::string locale = value;
    for (char& c : locale) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace tapeformer
