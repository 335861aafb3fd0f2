#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <tapeformer/examples/translation/attention_svg.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

constexpr std::size_t kLongestLabel = 24, kLongestTitle = 120;  // in characters
constexpr int kMargin = 16, kGap = 28, kBarWidth = 12, kLegendWidth = 64;

/// "#rrggbb" for x in [0, 1], from near white over green to dark blue; the lightness in Oklab falls linearly.
std::string color(double x) {
  constexpr double kPi = 3.14159265358979323846;
  const double lightness = 0.985 - 0.705 * x,
               chroma = 0.012 + 0.1 * std::sin(kPi * std::pow(x, 0.8)) + 0.06 * x;
  const double hue = (115 + 165 * x) * kPi / 180;
  const double a = chroma * std::cos(hue), b = chroma * std::sin(hue);
  const auto cube = [](double y) { return y * y * y; };
  const double l = cube(lightness + 0.3963377774 * a + 0.2158037573 * b),
               m = cube(lightness - 0.1055613458 * a - 0.0638541728 * b),
               s = cube(lightness - 0.0894841775 * a - 1.2914855480 * b);
  const auto byte = [](double linear) {
    linear = std::clamp(linear, 0.0, 1.0);
    const double y = linear <= 0.0031308 ? 12.92 * linear : 1.055 * std::pow(linear, 1 / 2.4) - 0.055;
    return static_cast<unsigned>(std::lround(255 * y));
  };
  return format("#{:02x}{:02x}{:02x}", byte(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
                byte(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
                byte(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s));
}

/// A displayed character.
struct Character {
  char32_t point;
  std::string utf8;
};

/// Removes the first character of `text`; bytes that are not UTF-8 count one by one.
Character take_character(std::string_view& text) {
  const Utf8Step step = next_utf8(text);
  const bool valid = step.kind == Utf8Step::whole;
  const std::string_view bytes = text.substr(0, valid ? step.length : 1);
  const char32_t point = valid ? decode_code_point(text) : 0xFFFD;
  text.remove_prefix(bytes.size());
  if (point < 0x20 || point == 0x7F) {  // the control's symbol, U+2400 to U+2421
    const auto last = static_cast<char>(point < 0x20 ? 0x80 + point : 0xA1);
    return {point < 0x20 ? 0x2400 + point : 0x2421, std::string("\xE2\x90") + last};
  }
  // The C1 controls, the two code points that XML forbids, and changes of the writing direction.
  const bool hidden = (point >= 0x80 && point < 0xA0) || (point & 0xFFFE) == 0xFFFE ||
                      (point >= 0x202A && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
  if (hidden || !valid) return {0xFFFD, "�"};
  switch (point) {
    case '&': return {point, "&amp;"};
    case '<': return {point, "&lt;"};
    case '>': return {point, "&gt;"};
    case '"': return {point, "&quot;"};
    case '\'': return {point, "&apos;"};
    default: return {point, std::string(bytes)};
  }
}

/// The approximate width in a sans-serif font, in units of the font size.
double width_of(char32_t point) {
  const bool broad = (point >= 'A' && point <= 'Z') || point == 'm' || point == 'w';
  return point >= 0x1100 ? 1.05 : broad ? 0.85 : 0.66;
}

/// Any bytes as text for XML: cut to at most `longest` characters, and whole for the tooltip.
struct Label {
  std::string text, whole;
  double width = 0;  // in units of the font size

  Label(std::string_view bytes, std::size_t longest) {
    std::size_t count = 0, cut = 0;  // `cut` is where the ellipsis goes
    while (!bytes.empty()) {
      Character shown = take_character(bytes);
      if (shown.point == ' ' && (count == 0 || bytes.empty())) shown = {0xB7, "·"};
      if (++count == longest) cut = whole.size();
      if (count <= longest) width += width_of(shown.point);
      whole += shown.utf8;
    }
    text = count > longest ? whole.substr(0, cut) + "…" : whole;
  }
};

std::vector<Label> labels_of(const std::vector<std::string>& texts) {
  std::vector<Label> labels;
  for (const std::string& text : texts) labels.emplace_back(text, kLongestLabel);
  return labels;
}

double widest(const std::vector<Label>& labels) {
  double width = 1;
  for (const Label& label : labels) width = std::max(width, label.width);
  return width;
}

void check(const Tensor& weights, std::size_t rows, std::size_t columns) {
  const int rank = weights.rank();
  const bool fits = (rank == 2 || rank == 3) && weights.size(-2) == static_cast<Index>(rows) &&
                    weights.size(-1) == static_cast<Index>(columns) && weights.elements() > 0;
  if (!fits) {
    throw ShapeError(format(
        "[heat_map] weights must be [T, S] or [H, T, S] and not empty, with T row and S column labels; got "
        "weights={} with {} and {} labels; try one sentence of the batch",
        weights.describe(), rows, columns));
  }
  for (Index i = 0; i < weights.elements(); ++i) {
    if (weights.at(i) >= 0 && std::isfinite(weights.at(i))) continue;
    throw Error(
        format("[heat_map] weights must be finite and not negative; got {} in weights={}; try the weights "
               "after the softmax",
               weights.at(i), weights.describe()));
  }
}

/// The weights of each panel, [T * S]; one panel if averaged, else H.
std::vector<std::vector<double>> panels_of(const Tensor& weights, bool averaged) {
  const Index cells = weights.size(-2) * weights.size(-1), heads = weights.elements() / cells;
  const Index panels = averaged ? 1 : heads;
  std::vector<std::vector<double>> result(static_cast<std::size_t>(panels),
                                          std::vector<double>(static_cast<std::size_t>(cells)));
  for (Index i = 0; i < weights.elements(); ++i) {
    result[static_cast<std::size_t>(i / cells % panels)][static_cast<std::size_t>(i % cells)] +=
        weights.at(i) * static_cast<double>(panels) / static_cast<double>(heads);
  }
  return result;
}

/// Writes one picture. Coordinates are in pixels.
class Picture {
 public:
  Picture(const Tensor& weights, const std::vector<std::string>& rows,
          const std::vector<std::string>& columns, const HeatMapOptions& options)
      : rows_(labels_of(rows)), columns_(labels_of(columns)), panels_(panels_of(weights, options.averaged)) {
    for (const auto& panel : panels_)
      largest_ = std::max(largest_, *std::max_element(panel.begin(), panel.end()));
    const auto longest = static_cast<int>(std::max(rows.size(), columns.size()));
    cell_ = std::clamp(960 / longest, 6, 26);
    font_ = std::clamp(cell_ - 2, 5, 13);
    left_ = static_cast<int>(std::ceil(widest(rows_) * font_)) + 8;
    top_ = static_cast<int>(std::ceil(widest(columns_) * font_)) + 8;
    const bool several = weights.rank() == 3 && !options.averaged;
    if (several) top_ += kHeading;
    panel_width_ = left_ + cell_ * static_cast<int>(columns.size());
    panel_height_ = top_ + cell_ * static_cast<int>(rows.size());

    const auto count = static_cast<int>(panels_.size());
    const double squarest = std::ceil(std::sqrt(1.0 * count * panel_height_ / panel_width_));
    const int most_across = std::clamp(static_cast<int>(squarest), 1, count);
    const int panel_rows = (count + most_across - 1) / most_across;
    const int across = (count + panel_rows - 1) / panel_rows;
    const int panels_right = kMargin + across * (panel_width_ + kGap);
    const Label title(options.title, kLongestTitle);
    const int title_height = title.text.empty() ? 0 : 32;
    const int panels_bottom = kMargin + title_height + panel_rows * (panel_height_ + kGap) - kGap;
    const int legend_top = kMargin + title_height + top_;
    const int legend_height = std::clamp(cell_ * static_cast<int>(rows.size()), 80, 240);
    begin(std::max(panels_right + kLegendWidth, kMargin * 2 + static_cast<int>(title.width * kTitleFont)),
          std::max(panels_bottom, legend_top + legend_height) + kMargin, title);
    for (int i = 0; i < count; ++i) {
      panel(i, kMargin + i % across * (panel_width_ + kGap),
            kMargin + title_height + i / across * (panel_height_ + kGap), several);
    }
    legend(panels_right, legend_top, legend_height);
    svg_ += "</svg>\n";
  }

  const std::string& svg() const { return svg_; }

 private:
  static constexpr int kTitleFont = 14, kHeading = 22;

  void begin(int width, int height, const Label& title) {
    svg_ = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" +
           format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {} {}\" "
               "font-family=\"'DejaVu Sans', Verdana, sans-serif\" font-size=\"{}\" fill=\"#222\">\n",
               width, height, width, height, font_);
    if (!title.text.empty()) svg_ += "<title>" + title.whole + "</title>\n";
    svg_ += "<rect class=\"page\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
    if (!title.text.empty())
      text(title, format("x=\"{}\" y=\"{}\" font-size=\"{}\"", kMargin, kMargin + kTitleFont, kTitleFont));
  }

  void text(const Label& label, const std::string& where) {
    svg_ += "<text " + where + ">" + label.text;
    if (label.text != label.whole) svg_ += "<title>" + label.whole + "</title>";
    svg_ += "</text>\n";
  }

  void panel(int index, int x, int y, bool headed) {
    svg_ += format("<g class=\"panel\" transform=\"translate({} {})\">\n", x, y);
    if (headed) {
      svg_ += format("<text x=\"{}\" y=\"13\" font-size=\"13\" font-weight=\"bold\">head {}</text>\n", left_,
                     index);
    }
    const double middle = 0.5 * cell_ + 0.35 * font_;  // the baseline of text centred in a cell
    for (std::size_t s = 0; s < columns_.size(); ++s) {
      text(columns_[s], format("transform=\"translate({:.1f} {}) rotate(-90)\"",
                               left_ + static_cast<double>(s) * cell_ + middle, top_ - 5));
    }
    for (std::size_t t = 0; t < rows_.size(); ++t) {
      text(rows_[t], format("x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\"", left_ - 5,
                            top_ + static_cast<double>(t) * cell_ + middle));
    }
    svg_ += format("<g transform=\"translate({} {}) scale({})\" shape-rendering=\"crispEdges\">\n", left_,
                   top_, cell_);
    const std::vector<double>& weights = panels_[static_cast<std::size_t>(index)];
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const std::size_t t = i / columns_.size(), s = i % columns_.size();
      svg_ += format("<rect x=\"{}\" y=\"{}\" width=\"1\" height=\"1\" fill=\"{}\"><title>", s, t,
                     color(largest_ > 0 ? weights[i] / largest_ : 0)) +
              rows_[t].whole + " ← " + columns_[s].whole + format(": {:.4g}</title></rect>\n", weights[i]);
    }
    svg_ += format(
        "</g>\n<rect class=\"frame\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" "
        "stroke=\"#999\"/>\n</g>\n",
        left_, top_, panel_width_ - left_, panel_height_ - top_);
  }

  void legend(int x, int y, int height) {
    constexpr int kStops = 16;
    svg_ += "<linearGradient id=\"scale\" x1=\"0\" y1=\"1\" x2=\"0\" y2=\"0\">";
    for (int i = 0; i <= kStops; ++i) {
      const double share = static_cast<double>(i) / kStops;
      svg_ += format("<stop offset=\"{}\" stop-color=\"{}\"/>", share, color(share));
    }
    svg_ += format(
        "</linearGradient>\n<g class=\"legend\" font-size=\"11\" transform=\"translate({} {})\">\n"
        "<rect width=\"{}\" height=\"{}\" fill=\"url(#scale)\" stroke=\"#999\"/>\n",
        x, y, kBarWidth, height);
    for (const double share : {0.0, 0.5, 1.0}) {
      svg_ += format("<text x=\"{}\" y=\"{:.1f}\">{:.3g}</text>\n", kBarWidth + 6, (1 - share) * height + 4,
                     share * largest_);
    }
    svg_ += "</g>\n";
  }

  std::vector<Label> rows_, columns_;
  std::vector<std::vector<double>> panels_;
  double largest_ = 0;
  int cell_ = 0, font_ = 0, left_ = 0, top_ = 0, panel_width_ = 0, panel_height_ = 0;
  std::string svg_;
};

}  // namespace

std::string heat_map_svg(const Tensor& given, const std::vector<std::string>& rows,
                         const std::vector<std::string>& columns, const HeatMapOptions& options) {
  const Tensor weights = given.to(Device::cpu());
  check(weights, rows.size(), columns.size());
  return Picture(weights, rows, columns, options).svg();
}

void write_heat_map(const std::string& path, const Tensor& weights, const std::vector<std::string>& rows,
                    const std::vector<std::string>& columns, const HeatMapOptions& options) {
  write_atomically(path, heat_map_svg(weights, rows, columns, options));
}

}  // namespace tapeformer
