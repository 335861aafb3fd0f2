#include <tapeformer/examples/gradcheck/attention_figures.h>

#include <doctest/doctest.h>

#include <sstream>

using namespace tapeformer;

TEST_SUITE_BEGIN("examples/gradcheck/attention_figures");

TEST_CASE("the layers reproduce every published figure to every printed decimal") {
  const std::vector<AttentionFigure> figures = attention_figures();
  CHECK(figures.size() == 17);
  for (const AttentionFigure& figure : figures) {
    CAPTURE(figure.title);
    CHECK(figure.ours == figure.published);
  }
}

TEST_CASE("what is printed ends in the verdict") {
  std::ostringstream out;
  CHECK(print_attention_figures(out));
  CHECK(out.str().find("DIFFERS") == std::string::npos);
  CHECK(out.str().find("every printed decimal is the same") != std::string::npos);
}

TEST_SUITE_END();
