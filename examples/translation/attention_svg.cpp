#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/examples/translation/attention_svg.h>
#include <tapeformer/examples/translation/xml_text.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

constexpr std::size_t kLongestLabel = 24;  // in characters
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

/// A label for XML: `text`, cut to length, and `whole`, which shows when pointed at.
struct Label {
  std::string text, whole;
  double width = 0;  // in units of the font size
};

std::vector<Label> labels_of(const std::vector<std::string>& texts) {
  std::vector<Label> labels;
  for (const std::string& text : texts) {
    const XmlText shown(text, kLongestLabel);
    labels.push_back({shown.escaped, XmlText(text).escaped, shown.width});
  }
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
    throw ShapeError(
        "[heat_map] weights must be [T, S] or [H, T, S] and not empty, with T row and S column labels; "
        "got weights=" +
        weights.describe() + " with " + std::to_string(rows) + " and " + std::to_string(columns) +
        " labels; try one sentence of the batch");
  }
  for (Index i = 0; i < weights.elements(); ++i) {
    if (weights.at(i) >= 0 && std::isfinite(weights.at(i))) continue;
    throw Error("[heat_map] weights must be finite and not negative; got " + format("{}", weights.at(i)) +
                " in weights=" + weights.describe() + "; try the weights behind the softmax");
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
    const int title_room = std::max(panels_right + kLegendWidth - 2 * kMargin, kLeastTitleWidth);
    const std::vector<XmlText> title = xml_lines(options.title, static_cast<double>(title_room) / kTitleFont);
    double title_width = 0;
    for (const XmlText& line : title) title_width = std::max(title_width, line.width);
    const int title_height = title.empty() ? 0 : static_cast<int>(title.size()) * kTitleLine + kTitleFont;
    const int panels_bottom = kMargin + title_height + panel_rows * (panel_height_ + kGap) - kGap;
    const int legend_top = kMargin + title_height + top_;
    const int legend_height = std::clamp(cell_ * static_cast<int>(rows.size()), 80, 240);
    begin(std::max(panels_right + kLegendWidth, kMargin * 2 + static_cast<int>(title_width * kTitleFont)),
          std::max(panels_bottom, legend_top + legend_height) + kMargin, XmlText(options.title), title);
    for (int i = 0; i < count; ++i) {
      panel(i, kMargin + i % across * (panel_width_ + kGap),
            kMargin + title_height + i / across * (panel_height_ + kGap), several);
    }
    legend(panels_right, legend_top, legend_height);
    svg_ += "</svg>\n";
  }

  const std::string& svg() const { return svg_; }

 private:
  static constexpr int kTitleFont = 14, kTitleLine = 18, kLeastTitleWidth = 480, kHeading = 22;

  void begin(int width, int height, const XmlText& whole_title, const std::vector<XmlText>& title) {
    svg_ = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" +
           format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {} "
               "{}\" "
               "font-family=\"'DejaVu Sans', Verdana, sans-serif\" font-size=\"{}\" fill=\"#222\">\n",
               width, height, width, height, font_);
    if (!title.empty()) svg_ += "<title>" + whole_title.escaped + "</title>\n";
    svg_ += "<rect class=\"page\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
    for (std::size_t line = 0; line < title.size(); ++line) {
      svg_ += format("<text x=\"{}\" y=\"{}\" font-size=\"{}\">", kMargin,
                     kMargin + kTitleFont + static_cast<int>(line) * kTitleLine, kTitleFont) +
              title[line].escaped + "</text>\n";
    }
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
