#include <tapeformer/examples/language/options.h>
#include <tapeformer/examples/shared/sweep.h>
#include <tapeformer/tests/examples/arguments.h>
#include <tapeformer/tests/reference/check_below.h>

#include <cmath>

using namespace tapeformer;

TEST_CASE("every combination of the values is one case, and the last option varies fastest") {
  const std::vector<SweepCase> cases = sweep_cases({"program", "sweep", "--vary", "rate", "1e-3", "-1",
                                                    "--seeds", "2", "--vary", "bias", "true", "false"});
  REQUIRE(cases.size() == 4);
  CHECK(cases[0].name == "rate=1e-3,bias=true");
  CHECK(cases[1].name == "rate=1e-3,bias=false");
  CHECK(cases[3].name == "rate=-1,bias=false");
  CHECK(cases[3].options == std::vector<std::string>{"--rate=-1", "--bias=false"});
}

TEST_CASE("an option without values, or with one twice, is refused") {
  CHECK_THROWS_WITH_AS(sweep_cases({"--vary", "rate", "--vary", "width", "8"}),
                       "--vary needs an option and its values; try --vary learning-rate 1e-3 3e-3", Error);
  CHECK_THROWS_WITH_AS(sweep_cases({"--vary", "rate", "1", "2", "1"}),
                       "--vary rate has the value 1 twice; leave one out", Error);
  CHECK_THROWS_WITH_AS(
      sweep_cases({"--vary", "corpus", "a/b", "a_b"}),
      "--vary corpus has the value a_b twice, since a folder's name has _ for /; leave one out", Error);
  CHECK_THROWS_WITH_AS(sweep_cases({"--vary", "rate", "1", "--vary", "rate", "2"}),
                       "--vary rate is given twice; join their values", Error);
}

TEST_CASE("a run that a sweep resumes gets the options again that are not the run's own") {
  const char* const name = "program";
  CommandLine line;
  LanguageOptions options;
  const TrainIn never = [](const RunFolder&, const TrainingControl&) { return 1; };
  const TrainCommand train(line, 1, &name, options.training, never, never);
  options.add_to(train.command());
  CHECK(train.for_resuming(
            words_of("--seed 1 --tensorboard --corpus a b --device=cpu --threads 2 --width=8")) ==
        words_of("--tensorboard --device=cpu --threads 2"));
}

TEST_CASE("Welch's probability by hand, and where it is undefined") {
  // t = 1 / sqrt(2/3) with 4 degrees of freedom: p = 1 - u (3 - u^2) / 2 with u = t / sqrt(t^2 + 4).
  const double u = std::sqrt(1.5 / 5.5);
  CHECK_BELOW(std::abs(welch_probability({1, 2, 3}, {2, 3, 4}) - (1 - u * (3 - u * u) / 2)), 1e-6);
  CHECK_BELOW(std::abs(welch_probability({1, 2}, {1, 2}) - 1), 1e-6);
  CHECK(std::isnan(welch_probability({1}, {1, 2})));
  CHECK(std::isnan(welch_probability({1, 1}, {2, 2})));
}
