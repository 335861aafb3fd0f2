#include <tapeformer/tests/examples/arguments.h>

using namespace tapeformer;

namespace {

std::string refusal(const std::vector<std::string>& arguments) {
  return message_of<Error>([&] {
    CommandLine line;
    const Command train = line.command("train");
    line.command("report");
    int steps = 0;
    train.option("--steps", steps).required();
    train.option("--validate-every", steps);
    const bool go_on = read(line, arguments);
    CHECK(go_on);
  });
}

}  // namespace

TEST_CASE("an unknown option is named, with the nearest known one, and other mistakes give one line too") {
  CHECK(refusal({"train", "--steps", "5", "--validation-every", "5"}) ==
        "unknown option --validation-every; did you mean --validate-every?");
  CHECK(refusal({"train", "--steps", "5", "--stpes=7"}) == "unknown option --stpes; did you mean --steps?");
  CHECK(refusal({"train", "--steps", "5", "--corpus", "text"}) == "unknown option --corpus; try --help");
  CHECK(refusal({"train", "--steps", "5", "text"}) == "unexpected argument text");
  CHECK(refusal({"train", "--steps", "5", "[text]"}) == "unexpected argument [text]");
  CHECK(refusal({"train", "--steps", "5", "--steps-a-day", "5"}) ==
        "unknown option --steps-a-day; did you mean --steps?");
  for (const char* name : {"--epochs", "--max-iters=5", "--num_train_epochs", "-epochs"}) {
    const std::string bare = std::string(name).substr(0, std::string(name).find('='));
    CHECK(refusal({"train", "--steps", "5", name}) == "unknown option " + bare + "; did you mean --steps?");
  }
  CHECK(refusal({"train", "--steps", "5", "--eval_interval", "5"}) ==
        "unknown option --eval_interval; did you mean --validate-every?");
  CHECK(refusal({"train", "--steps", "5", "--lr", "5"}) == "unknown option --lr; try --help");  // it has none
  CHECK(refusal({"trian"}) == "unknown command trian; try one of train, report");
  CHECK(refusal({"--steps", "5"}) == "a command comes before --steps: one of train, report");
  CHECK(refusal({"report", "--steps", "5"}) == "--steps is an option of train, not of report");
  CHECK(refusal({"train"}) == "--steps is required");
  CHECK(refusal({}) == "a command is required: one of train, report; try --help");
  CHECK(refusal({"train", "--steps", "5"}) == "nothing was thrown");
}

TEST_CASE("fields of every kind are filled, and given options are known") {
  std::string text = "unset", file;
  std::vector<std::string> names;
  std::optional<std::uint64_t> seed;
  Index size = 1;
  int points = 4;
  double share = 0.5;
  bool on = false, graphs = true, second = true;
  const CommandLine line;
  line.option("names", names);
  line.option("--text", text).group("Words");
  line.option("--file", file).optional_value("-", "[FILE]").group("Words");
  line.option("--seed", seed);
  line.option("--points", points).one_of({"2", "4"});
  line.option("--size", size).group("Numbers");
  line.option("--share", share, "of all", kShare).group("Numbers");
  line.flag("--on", on);
  line.flag("--second,!--no-second", second);
  line.negative_flag("--no-graphs", graphs, "none");
  CHECK(read(line, {"a", "b", "--size", "5", "--size", "7", "--text", "", "--no-graphs", "--no-second",
                    "--points", "2", "--seed", "18446744073709551615"}));
  CHECK(names == std::vector<std::string>{"a", "b"});
  CHECK(text.empty());
  CHECK(seed == 18446744073709551615U);
  CHECK(size == 7);
  CHECK(points == 2);
  CHECK(share == 0.5);
  CHECK_FALSE(on);
  CHECK_FALSE(graphs);
  CHECK_FALSE(second);
  CHECK(line.find("--size").given());
  CHECK_FALSE(line.find("--on").given());
  CHECK(line.given_of({"Words", "Numbers"}) == std::vector<std::string>{"--text", "--size"});
  CHECK(line.given_of({"Words"}) == std::vector<std::string>{"--text"});
}

TEST_CASE("a word in brackets is a word, not a list") {
  std::string text, other;
  std::vector<std::string> words, files;
  const CommandLine line;
  line.option("--text", text);
  line.option("--other", other);
  line.option("--file", files);
  line.option("WORD", words);
  CHECK(read(line, {"[a, b]", "", "[]", "x]", "--text", "[c,d]", "--file=[e, f]", "--other=g\x01"}));
  CHECK(words == std::vector<std::string>{"[a, b]", "", "[]", "x]"});
  CHECK(files == std::vector<std::string>{"[e, f]"});
  CHECK(text == "[c,d]");
  CHECK(other == "g\x01");
}

TEST_CASE("one of the commands is chosen, and options may need or exclude each other") {
  const auto refused = [](const std::vector<std::string>& arguments) {
    return message_of<Error>([&] {
      CommandLine line;
      const Command draw = line.command("draw"), search = line.command("search");
      std::vector<std::string> stops;
      bool sample = false, greedy = false, other = false;
      const CommandOption of_sample = draw.flag("--sample", sample);
      draw.flag("--greedy", greedy).excludes(of_sample);
      draw.flag("--other", other).needs(of_sample);
      draw.option("--stop", stops).one_at_a_time().not_empty();
      const bool go_on = read(line, arguments);
      CHECK(go_on);
      CHECK(draw.chosen());
      CHECK_FALSE(search.chosen());
    });
  };
  CHECK(refused({"draw", "--sample", "--other"}) == "nothing was thrown");
  CHECK(refused({"draw", "--stop", "a", "--stop", "b"}) == "nothing was thrown");
  CHECK(refused({"draw", "--stop", "a", "b"}) == "unexpected argument b");
  CHECK(refused({"draw", "--stop", ""}) == "--stop must not be empty");
  CHECK(has(refused({"draw", "--greedy", "--sample"}), " excludes "));
  CHECK(refused({"draw", "--other"}) == "--other requires --sample");
}

TEST_CASE("a flag takes true or false, and nothing else") {
  bool first = false, second = true;
  const CommandLine line;
  line.flag("--first", first);
  line.flag("--second,!--no-second", second);
  line.value<bool>(
      "--third", std::nullopt, [](const bool&) {}, "");
  const auto refused = [&](const std::string& argument) {
    return message_of<Error>([&] { read(line, {argument}); });
  };
  CHECK(refused("--first=true") == "nothing was thrown");
  CHECK(first);
  CHECK(refused("--first=false") == "nothing was thrown");
  CHECK_FALSE(first);
  CHECK(refused("--third=no") == "nothing was thrown");
  CHECK(refused("--first=fals") == "--first must be true or false; got fals");
  CHECK(refused("--third=") == "nothing was thrown");
  CHECK(refused("--third=fals") == "--third must be true or false; got fals");
  CHECK(refused("--third=99999999999999999999") == "--third must be true or false; got 99999999999999999999");
  CHECK(refused("--no-second=false") == "--no-second takes no value; got --no-second=false");
  CHECK(refused("--no-second") == "nothing was thrown");
  CHECK_FALSE(second);
}

TEST_CASE("the help shows defaults, words and groups") {
  std::string device = "auto", file;
  const CommandLine line("Counts.");
  line.option("--device", device, "where").one_of({"auto", "cpu"}).group("Places");
  line.option("--file", file, "what").optional_value("-", "[FILE]");
  line.footer("That is all.");
  const std::string help = line.help();
  CHECK(help.find("Counts.\n") == 0);
  const std::size_t words = help.find("--device TEXT:{auto,cpu}");
  CHECK(words != std::string::npos);
  CHECK(help.find("auto", words + 20) != std::string::npos);
  CHECK(has(help, "--file [FILE]"));
  CHECK(has(help, "\nPlaces:\n"));
  CHECK(has(help, "That is all."));
  CHECK_THROWS_WITH_AS(read(line, {"--device", "gpu"}), "--device must be one of auto, cpu; got gpu", Error);
}
