#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/byte_tokenizer.h>
#include <tapeformer/examples/language/generate.h>
#include <tapeformer/tests/examples/arguments.h>

using namespace tapeformer;

namespace {

/// Collects the output piece by piece; the reader leaves after `most` pieces.
struct Reader {
  std::vector<std::string> pieces;
  std::size_t most = 1000;

  SampleWriter::Write write() {
    return [this](std::string_view text) {
      pieces.emplace_back(text);
      return pieces.size() < most;
    };
  }
  std::string all() const { return joined(pieces, ""); }
};

struct ReaderCase {
  const std::unique_ptr<Tokenizer> bytes = make_byte_tokenizer();
  Reader reader;
};

}  // namespace

TEST_CASE_FIXTURE(ReaderCase, "one sample is written token by token, after the prompt, and ends its line") {
  SampleWriter writer(*bytes, 1, {}, "To ", false, reader.write());
  CHECK(reader.all().empty());  // no prompt before the first token
  CHECK(writer.add(0, 300));    // an id that rounds up the model's sizes shows nothing
  for (const char c : std::string("be")) CHECK(writer.add(0, c));
  CHECK(reader.pieces == std::vector<std::string>{"To ", "b", "e"});
  writer.finish();
  CHECK(reader.all() == "To be\n");
  CHECK(writer.tokens() == 3);
}

TEST_CASE_FIXTURE(
    ReaderCase,
    "of samples side by side the first is written at once, the others when those before them end") {
  SampleWriter writer(*bytes, 3, {"!"}, "<", false, reader.write());
  CHECK(writer.add(0, 'a'));
  CHECK(writer.add(1, 'x'));
  CHECK(writer.add(2, 'p'));
  CHECK(reader.all() == "<a");
  CHECK(writer.add(0, 'b'));
  CHECK(writer.add(1, 'y'));
  CHECK_FALSE(writer.add(2, '!'));
  CHECK(reader.all() == "<ab");
  CHECK_FALSE(writer.add(0, '!'));  // a stop string: the second sample is shown from here on
  const std::string separator = SampleWriter::kSeparator;
  CHECK(reader.all() == "<ab" + separator + "<xy");
  CHECK(writer.add(1, 'z'));
  CHECK(reader.all() == "<ab" + separator + "<xyz");
  writer.finish();
  CHECK(reader.all() == "<ab" + separator + "<xyz" + separator + "<p\n");
}

TEST_CASE_FIXTURE(ReaderCase,
                  "a sample that falls behind has reached its end token, and the next one is shown") {
  SampleWriter writer(*bytes, 2, {}, "", false, reader.write());
  writer.add(0, 'a');
  for (const char c : std::string("xyz")) CHECK(writer.add(1, c));
  CHECK(reader.all() == std::string("a") + SampleWriter::kSeparator + "xyz");
}

TEST_CASE_FIXTURE(ReaderCase, "half a character waits, and at the end it becomes U+FFFD") {
  SampleWriter writer(*bytes, 1, {}, "", false, reader.write());
  writer.add(0, 0xc3);
  CHECK(reader.all().empty());
  writer.add(0, 0xa9);
  CHECK(reader.all() == "é");
  writer.add(0, 0xf0);
  writer.finish();
  CHECK(reader.all() == "é\xef\xbf\xbd\n");
}

TEST_CASE_FIXTURE(ReaderCase, "sampling stops when nobody reads") {
  reader.most = 2;
  SampleWriter writer(*bytes, 2, {}, "", false, reader.write());
  CHECK(writer.add(0, 'a'));
  CHECK_FALSE(writer.add(0, 'b'));
  CHECK_FALSE(writer.add(1, 'c'));
  writer.finish();
  CHECK(writer.closed());
  CHECK(reader.all() == "ab");
}

TEST_CASE_FIXTURE(ReaderCase,
                  "further samples follow those that have ended, in a writer that keeps only the new ones") {
  SampleWriter writer(*bytes, 2, {"!"}, "<", false, reader.write());
  const std::string separator = SampleWriter::kSeparator;
  writer.add(0, 'a');
  writer.add(1, 'x');
  writer.next(2);
  CHECK(reader.all() == "<a" + separator + "<x" + separator + "<");
  CHECK(writer.add(0, 'b'));
  CHECK_FALSE(writer.add(1, '!'));
  CHECK_FALSE(writer.add(0, '!'));  // stop strings are still known
  writer.next(1);
  CHECK(writer.add(0, 'c'));
  writer.finish();
  CHECK(reader.all() == "<a" + separator + "<x" + separator + "<b" + separator + "<" + separator + "<c\n");
  CHECK(writer.tokens() == 6);
}

TEST_CASE("numbers out of range are refused by their option and value, before anything is read") {
  const auto refused = [](const char* option, const char* value) {
    return message_of<Error>([&] { parsed<GenerateOptions>({"--run", "r", option, value}); });
  };
  CHECK(refused("--max-tokens", "0") == "--max-tokens must be positive; got 0");
  CHECK(refused("--samples", "0") == "--samples must be positive; got 0");
  CHECK(refused("--temperature", "-1") == "--temperature must not be negative; got -1");
  CHECK(refused("--top-k", "-1") == "--top-k must not be negative; got -1");
  CHECK(refused("--top-p", "1.01") == "--top-p must be above 0 and at most 1; got 1.01");
  CHECK(refused("--min-p", "-0.1") == "--min-p must be from 0 to 1; got -0.1");
  CHECK(refused("--repetition-penalty", "0") == "--repetition-penalty must be from 1e-6 to 1e6; got 0");
  CHECK(refused("--average", "-1") == "--average must not be negative; got -1");
  CHECK(refused("--stop", "") == "--stop must not be empty");
  CHECK(refused("--top-p", "1") == "nothing was thrown");
  CHECK(refused("--temperature", "0") == "nothing was thrown");
}

TEST_CASE("sampling options are refused where nothing is sampled") {
  const auto refused = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--run", "r"});
    return refusal_of_ignored<GenerateOptions>(arguments);
  };
  for (const std::string option : {"--top-k", "--top-p", "--min-p", "--seed"}) {
    CHECK(refused({"--greedy", option, "1"}) == option + " has no effect with --greedy; leave it out");
    CHECK(refused({"--temperature", "0", option, "1"}) ==
          option + " has no effect at temperature 0; leave it out");
    CHECK(refused({"--temperature", "0.1", option, "1"}) == "nothing was thrown");
  }
  CHECK(refused({"--greedy", "--repetition-penalty", "2", "--samples", "2"}) == "nothing was thrown");
}
