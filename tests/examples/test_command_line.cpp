#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/command_line.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>
#include <CLI/CLI.hpp>

#include <vector>

using namespace tapeformer;

namespace {

std::string refusal(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "program");
  return message_of<Error>([&] {
    CLI::App app;
    app.require_subcommand(1);
    CLI::App& train = *app.add_subcommand("train");
    int steps = 0;
    train.add_option("--steps", steps)->required();
    train.add_option("--validate-every", steps);
    const bool go_on = read_command_line(app, static_cast<int>(arguments.size()), arguments.data());
    CHECK(go_on);
  });
}

}  // namespace

TEST_SUITE("examples/command_line") {
  TEST_CASE("an unknown option is named, with the one that is nearest") {
    CHECK(refusal({"train", "--steps", "5", "--validation-every", "5"}) ==
          "unknown option --validation-every; is --validate-every meant?");
    CHECK(refusal({"train", "--steps", "5", "--stpes=7"}) == "unknown option --stpes; is --steps meant?");
    CHECK(refusal({"train", "--steps", "5", "--corpus", "text"}) == "unknown option --corpus; try --help");
    CHECK(refusal({"train", "--steps", "5", "text"}) == "unexpected argument text");
    CHECK(refusal({"trian"}) == "unexpected argument trian");
  }

  TEST_CASE("what else is wrong is one line, and what is right is read") {
    CHECK(refusal({"train"}) == "--steps is required");
    CHECK(refusal({}) == "A subcommand is required");
    CHECK(refusal({"train", "--steps", "5"}) == "nothing was thrown");
  }
}
