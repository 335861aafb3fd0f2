#include <tapeformer/examples/translation/xml_text.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_SUITE("examples/translation/xml_text") {
  TEST_CASE("markup is escaped, other text stays") {
    CHECK(XmlText("<end> & \"it's\"").escaped == "&lt;end&gt; &amp; &quot;it&apos;s&quot;");
    CHECK(XmlText("naïve – 猫 😀").escaped == "naïve – 猫 😀");
    CHECK(XmlText("").escaped.empty());
    CHECK(XmlText("]]>").escaped == "]]&gt;");
  }

  TEST_CASE("spaces at the ends, which a reader would not see, are dots") {
    CHECK(XmlText(" house").escaped == "·house");
    CHECK(XmlText("a b ").escaped == "a b·");
    CHECK(XmlText(" ").escaped == "·");
  }

  TEST_CASE("control characters show as their symbols; what XML forbids or turns the text is replaced") {
    CHECK(XmlText(std::string("a\0b", 3)).escaped == "a␀b");
    CHECK(XmlText("\x01\t\n\r\x1f\x7f").escaped == "␁␉␊␍␟␡");
    CHECK(XmlText("\u0085").escaped == "�");  // C1
    CHECK(XmlText("\uFFFE\uFFFF\uFFFD").escaped == "���");
    CHECK(XmlText("\U0001FFFF").escaped == "�");
    CHECK(XmlText("a\u202Eb\u2066").escaped == "a�b�");
  }

  TEST_CASE("bytes that are not UTF-8 are replaced one by one, and what follows is read again") {
    CHECK(XmlText("a\xff"
                  "b")
              .escaped == "a�b");
    CHECK(XmlText("\x80").escaped == "�");
    CHECK(XmlText("\xe7\x8c").escaped == "��");       // the start of a character, then the end
    CHECK(XmlText("\xe7\x8c<").escaped == "��&lt;");  // what is cut off swallows no markup
    CHECK(XmlText("\xc0\xaf").escaped == "��");       // overlong
    CHECK(XmlText("\xe0\x80\xaf").escaped == "���");
    CHECK(XmlText("\xed\xa0\x80").escaped == "���");       // a surrogate
    CHECK(XmlText("\xf4\x90\x80\x80").escaped == "����");  // beyond U+10FFFF
    CHECK(XmlText("\xf5\x80\x80\x80").escaped == "����");
    CHECK(XmlText("\xf4\x8f\xbf\xbd").escaped == "\xf4\x8f\xbf\xbd");
  }

  TEST_CASE("long text is cut between characters, at its length exactly, with an ellipsis") {
    CHECK(XmlText("猫猫猫猫", 4).escaped == "猫猫猫猫");
    CHECK(XmlText("猫猫猫猫猫", 4).escaped == "猫猫猫…");
    CHECK(XmlText("a<b<c", 4).escaped == "a&lt;b…");
    CHECK(XmlText("ab<<<", 4).escaped == "ab&lt;…");
  }

  TEST_CASE("lines hold all of a text, break at spaces, and inside a word only where it is too long") {
    const auto lines = [](const std::string& text, double widest) {
      std::string joined;
      for (const XmlText& line : xml_lines(text, widest)) {
        CHECK(line.width <= widest);
        joined += (joined.empty() ? "" : "|") + line.escaped;
      }
      return joined;
    };
    CHECK(lines("", 10).empty());
    CHECK(lines("aaa bbb ccc", 100) == "aaa bbb ccc");
    CHECK(lines("aaa bbb ccc", 5) == "aaa bbb|ccc");
    CHECK(lines("aaa bbb ccc", 4.7) == "aaa bbb|ccc");  // the space that is one too many
    CHECK(lines("aaa bbb", 2) == "aaa|bbb");
    CHECK(lines("aaaaaaa b", 2) == "aaa|aaa|a b");
    CHECK(lines("a<b>c", 1.4) == "a&lt;|b&gt;|c");
    CHECK(lines("猫猫猫", 2.2) == "猫猫|猫");
    CHECK(xml_lines("猫猫", 0.1).size() == 2);  // a character at least
  }

  TEST_CASE("wide characters count as wide") {
    CHECK(XmlText("猫猫").width > 2);
    CHECK(XmlText("ii").width < XmlText("mm").width);
    CHECK(XmlText(std::string(1000, 'm'), 10).width <= 10);
  }
}
