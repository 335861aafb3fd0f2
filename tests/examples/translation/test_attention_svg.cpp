#include <tapeformer/examples/translation/attention_svg.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/text.h>

#include <cmath>

using namespace tapeformer;

namespace {

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

struct Cell {
  std::string fill, title;
};

/// The cells in the order of the file.
std::vector<Cell> cells_of(const std::string& svg) {
  std::vector<Cell> cells;
  const std::string fill = "height=\"1\" fill=\"", title = "\"><title>";
  for (std::size_t at = svg.find(fill); at != std::string::npos; at = svg.find(fill, at + 1)) {
    const std::size_t from = at + fill.size(), text = from + 7 + title.size();
    CHECK(svg.compare(from + 7, title.size(), title) == 0);
    cells.push_back({svg.substr(from, 7), svg.substr(text, svg.find("</title>", text) - text)});
  }
  return cells;
}

/// Relative luminance of "#rrggbb", ITU-R BT.709.
double luminance(const std::string& color) {
  double sum = 0;
  const double share[] = {0.2126, 0.7152, 0.0722};
  for (std::size_t i = 0; i < 3; ++i) {
    const double x = std::stoi(color.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    sum += share[i] * (x <= 0.04045 ? x / 12.92 : std::pow((x + 0.055) / 1.055, 2.4));
  }
  return sum;
}

std::vector<std::string> labels(const std::string& prefix, Index count) {
  std::vector<std::string> result;
  for (Index i = 0; i < count; ++i) result.push_back(prefix + std::to_string(i));
  return result;
}

/// Every element is closed by its own name, and only elements hold markup.
void check_nesting(const std::string& svg) {
  std::vector<std::string> open;
  for (std::size_t at = svg.find('<', svg.find("?>")); at != std::string::npos; at = svg.find('<', at + 1)) {
    const std::size_t end = svg.find('>', at);
    REQUIRE(end != std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    REQUIRE_FALSE(has(tag, "<"));
    if (tag.front() == '/') {
      REQUIRE(!open.empty());
      REQUIRE(open.back() == tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  CHECK(open.empty());
}

}  // namespace

TEST_CASE("a cell for every pair, row by row, says its tokens and its weight") {
  const Tensor weights = values({0.5, 0.25, 0.25, 0, 0.125, 0.875}, {2, 3});
  const std::string svg = heat_map_svg(weights, {"le", "chat"}, {"the", " cat", "<end>"});
  check_nesting(svg);
  const std::vector<Cell> cells = cells_of(svg);
  REQUIRE(cells.size() == 6);
  CHECK(cells[0].title == "le ← the: 0.5");
  CHECK(cells[1].title == "le ← ·cat: 0.25");
  CHECK(cells[5].title == "chat ← &lt;end&gt;: 0.875");
  CHECK(cells[1].fill == cells[2].fill);
  CHECK(cells[0].fill != cells[1].fill);
  CHECK(has(svg, "<rect x=\"2\" y=\"1\" width=\"1\" height=\"1\""));
  // Two rows, three columns, and the ends and the middle of the scale.
  CHECK(count_of(svg, "<text ") == 2 + 3 + 3);
  CHECK(has(svg, ">0.875</text>"));
  CHECK(has(svg, ">0.438</text>"));
}

TEST_CASE("more weight is darker at every step, in about equal steps") {
  const Index steps = 40;
  std::vector<double> weights;
  for (Index i = 0; i <= steps; ++i) weights.push_back(static_cast<double>(i) / steps / 4);
  const Tensor row = values(weights, {1, steps + 1});
  const std::vector<Cell> cells = cells_of(heat_map_svg(row, {"x"}, labels("", steps + 1)));
  CHECK(luminance(cells.front().fill) > 0.9);
  CHECK(luminance(cells.back().fill) < 0.06);
  for (std::size_t i = 1; i < cells.size(); ++i) {
    CAPTURE(i);
    // The cube root of luminance is close to perceived lightness.
    const double step = std::cbrt(luminance(cells[i - 1].fill)) - std::cbrt(luminance(cells[i].fill));
    CHECK(step > 0.006);
    CHECK(step < 0.03);
  }
}

TEST_CASE("heads are averaged, or get a panel each on one scale") {
  const Tensor weights = values({1, 0, 0.25, 0.75}, {2, 1, 2});
  const std::string averaged = heat_map_svg(weights, {"t"}, {"a", "b"});
  REQUIRE(cells_of(averaged).size() == 2);
  CHECK(cells_of(averaged)[0].title == "t ← a: 0.625");
  CHECK(cells_of(averaged)[1].title == "t ← b: 0.375");
  CHECK(count_of(averaged, "class=\"panel\"") == 1);

  HeatMapOptions options;
  options.averaged = false;
  const std::string panels = heat_map_svg(weights, {"t"}, {"a", "b"}, options);
  check_nesting(panels);
  CHECK(count_of(panels, "class=\"panel\"") == 2);
  CHECK(panels.find(">head 0</text>") < panels.find(">head 1</text>"));
  const std::vector<Cell> cells = cells_of(panels);
  REQUIRE(cells.size() == 4);
  CHECK(cells[3].title == "t ← b: 0.75");
  CHECK(luminance(cells[3].fill) > luminance(cells[0].fill));
  CHECK(count_of(panels, "class=\"legend\"") == 1);
}

TEST_CASE("labels and title hold any bytes; long ones are cut, and whole in the tooltip") {
  const std::vector<std::pair<std::string, std::string>> shown = {
      {"<end> & \"it's\"", "&lt;end&gt; &amp; &quot;it&apos;s&quot;"},
      {"naïve – 猫 😀", "naïve – 猫 😀"},
      {" a b ", "·a b·"},
      {std::string("a\0b", 3), "a␀b"},
      {"\x01\t\n\r\x1f\x7f", "␁␉␊␍␟␡"},
      {"\u0085\uFFFE\U0001FFFF", "���"},  // a C1 control, and what XML forbids
      {"a\u202Eb\u2066", "a�b�"},         // these turn the direction of the text
      {"\xff\xe7\x8c<", "���&lt;"},       // truncated characters swallow no markup
      {"\xed\xa0\x80\xf4\x8f\xbf\xbd", "���\xf4\x8f\xbf\xbd"},
      {std::string(24, 'i'), std::string(24, 'i')}};
  for (const auto& [label, text] : shown) {
    const std::string svg = heat_map_svg(values({1}, {1, 1}), {label}, {"s"}, {true, label});
    check_nesting(svg);
    CHECK(has(svg, ">" + text + "</text>"));
    CHECK(cells_of(svg)[0].title == text + " ← s: 1");
  }
  const std::string word = "<" + std::string(200, 'w');
  const std::string svg = heat_map_svg(values({1}, {1, 1}), {word}, {"s"}, {true, word});
  check_nesting(svg);
  for (const std::size_t longest : {24, 120})
    CHECK(has(svg, ">&lt;" + std::string(longest - 2, 'w') + "…<title>&lt;www"));
  CHECK(cells_of(svg)[0].title == "&lt;" + word.substr(1) + " ← s: 1");
  CHECK(std::stoi(svg.substr(svg.find("width=\"") + 7)) > 120 * 8);  // room for the title
}

TEST_CASE("from one cell to 200 x 200, in f32 too; all zeros are all light") {
  const Tensor large = random_values({200, 200}, 1, DType::f32);
  for (Index i = 0; i < large.elements(); ++i) large.data<float>()[i] = std::fabs(large.data<float>()[i]);
  CHECK(count_of(heat_map_svg(large, labels("t", 200), labels("s", 200)), "height=\"1\" fill=\"") == 40000);
  for (const Cell& cell : cells_of(heat_map_svg(Tensor::zeros({2, 2}), {"a", "b"}, {"c", "d"})))
    CHECK(luminance(cell.fill) > 0.9);
}

TEST_CASE("labels that do not fit, empty tables and weights out of range are refused") {
  const auto says = [](const Tensor& weights, Index rows, Index columns) {
    return message_of<Error>([&] { heat_map_svg(weights, labels("t", rows), labels("s", columns)); });
  };
  CHECK(has(says(Tensor::zeros({2, 3}), 3, 2), "got weights=f32[2,3] with 3 and 2 labels"));
  CHECK(has(says(Tensor::zeros({0, 3}), 0, 3), "not empty"));
  CHECK(has(says(Tensor::zeros({1, 1, 2, 3}), 2, 3), "one sentence of the batch"));
  CHECK(has(says(values({0.5, std::nan("")}, {1, 2}), 1, 2), "finite and not negative; got nan"));
  CHECK(has(says(values({0.5, -1}, {1, 2}), 1, 2), "got -1"));
}
