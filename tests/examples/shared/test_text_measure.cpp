#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/examples/shared/text_measure.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>

using namespace tapeformer;

TEST_CASE("words are runs of anything but white space, and line ends count too") {
  CHECK(size_of_text("").words == 0);
  CHECK(size_of_text("one").words == 1);
  CHECK(size_of_text(" one  two\tthree ").words == 3);
  CHECK(size_of_text("one two\nthree\n").words == 5);
  CHECK(size_of_text("\n \n\n").words == 3);
  CHECK(size_of_text("é à").words == 2);
  CHECK(size_of_text("é à").bytes == 5);
  CHECK(size_of_text(std::string("a\0b", 3)).words == 1);
}

TEST_CASE("numbers and times are written without powers of ten") {
  CHECK(number_text(4.3481) == "4.348");
  CHECK(number_text(9999.4) == "9999");
  CHECK(number_text(9999.6) == "10000");
  CHECK(number_text(25756.039) == "25756");
  CHECK(short_duration_text(0.0131) == "13.1 ms");
  CHECK(short_duration_text(0.9994) == "999 ms");
  CHECK(short_duration_text(0.9996) == "1 s");
  CHECK(short_duration_text(1.31) == "1.31 s");
  CHECK(short_duration_text(99.96) == "1 min 40 s");
  CHECK(count_text(999.4) == "999");
  CHECK(count_text(999.6) == "1.0k");
  CHECK(count_text(999'960.0) == "1.00M");
  CHECK(count_text(124'439'808.0) == "124.44M");
  CHECK(count_text(999'996'000.0) == "1.00G");
  CHECK(count_text(1.5e15) == "1500.00T");
  CHECK(bytes_text(1023) == "1023 bytes");
  CHECK(bytes_text((1 << 20) - 1) == "1.0 MiB");
  CHECK(duration_text(1e300) == "2500000000000000 h 00 min");
}

TEST_CASE("pieces of a text add up to the whole, wherever it is cut") {
  const std::string text = "It was  the best\n\nof times, it was\tthe worst \n of times";
  const TextSize whole = size_of_text(text);
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); ++second) {
      TextSize sum;
      bool after_white_space = true;
      for (const std::string& piece :
           {text.substr(0, first), text.substr(first, second - first), text.substr(second)}) {
        sum += size_of_text(piece, after_white_space);
        if (!piece.empty()) after_white_space = is_white_space(piece.back());
      }
      CAPTURE(first);
      CAPTURE(second);
      CHECK(sum.words == whole.words);
      CHECK(sum.bytes == whole.bytes);
    }
  }
}

TEST_CASE("a loss in units of the text") {
  const TextLoss loss{2 * std::log(50.0), 4, {8, 2}};
  CHECK(loss.to_string() ==
        "1.9560 nats per token, perplexity 7.071, 1.4110 bits per byte, perplexity per word 50");
  CHECK(loss.json().at("loss") == loss.mean());
  CHECK(loss.json().at("word_perplexity") == doctest::Approx(50));
  CHECK(TextLoss{8 * std::log(2.0), 4, {8, 0}}.units().at(0).second == doctest::Approx(1));
  CHECK(TextLoss{1, 1, {}}.units().empty());
}
