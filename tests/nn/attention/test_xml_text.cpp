#include <tapeformer/nn/attention/xml_text.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_SUITE("nn/attention/xml_text") {
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

  TEST_CASE("wide characters count as wide") {
    CHECK(XmlText("猫猫").width > 2);
    CHECK(XmlText("ii").width < XmlText("mm").width);
    CHECK(XmlText(std::string(1000, 'm'), 10).width <= 10);
  }
}
