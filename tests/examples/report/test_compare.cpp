#include <tapeformer/autograd/config/json.h>
#include <tapeformer/examples/report/compare.h>
#include <tapeformer/examples/report/loss_plot.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>

#include <limits>
#include <sstream>

using namespace tapeformer;

namespace {

RunRecord record(const std::string& name, double rate, const std::string& corpus) {
  RunRecord run;
  run.name = name;
  run.config = {{"layers", 2},
                {"data_fingerprint", 1000 * rate},
                {"training", {{"learning_rate", rate}, {"corpus", corpus}, {"seed", 1}}}};
  run.facts = run.evaluation = Json::object();
  run.metrics = {{{"step", 1}, {"train_loss", 3.0}, {"tokens_per_second", 100.0}, {"elapsed", 4.0}},
                 {{"step", 1}, {"validation_loss", 2.0}},
                 {{"step", 2}, {"train_loss", 1.5}, {"tokens_per_second", 300.0}, {"elapsed", 70.0}},
                 {{"step", 2}, {"validation_loss", 2.25}},
                 {{"step", 3}, {"train_loss", nullptr}, {"tokens_per_second", 200.0}}};
  return run;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("a comparison has the options that differ, and each run's results") {
  RunRecord second = record("second", 0.5, "b");
  second.config["training"]["new_option"] = true;
  second.evaluation = {{"bleu", 41.5}, {"part", "test"}};
  second.metrics.clear();
  const Json comparison = comparison_json({record("first", 0.25, "a"), second});
  CHECK(comparison[0].at("options").dump() == R"({"learning_rate":0.25,"corpus":"a","new_option":null})");
  CHECK(comparison[1].at("options").dump() == R"({"learning_rate":0.5,"corpus":"b","new_option":true})");
  const Json& results = comparison[0].at("results");
  CHECK(results.at("last_step") == 3);
  CHECK(results.at("best_validation_loss") == 2);
  CHECK(results.at("final_training_loss") == 1.5);
  CHECK(results.at("tokens_per_second") == 200);
  CHECK(results.at("seconds") == 70);
  CHECK(results.at("bleu").is_null());
  CHECK(comparison[1].at("results").at("bleu") == 41.5);
  CHECK(comparison[1].at("results").at("bleu_part") == "test");
  CHECK(comparison[1].at("results").at("last_step").is_null());
  second.config["context"] = 1024;  // the model's, as both start from it
  RunRecord third = second;
  second.config["training"]["context"] = 256, third.config["training"]["context"] = 512;
  CHECK(comparison_json({second, third})[0].at("options").dump() == R"({"context":256})");
}

TEST_CASE("the best loss is the last measurement of the best weights, not the estimate that chose them") {
  RunRecord run = record("one", 0.5, "a");
  const auto best = [&] { return comparison_json({run})[0].at("results").at("best_validation_loss"); };
  CHECK(best() == 2);
  run.metrics.push_back({{"step", 3}, {"best_loss", 2.125}, {"best_estimated_loss", 2.0}});
  CHECK(best() == 2.125);
  run.metrics.push_back({{"step", 4}, {"validation_loss", 2.5}});  // it was resumed
  CHECK(best() == 2.125);
  run.metrics.push_back({{"step", 5}, {"validation_loss", 1.75}});
  CHECK(best() == 1.75);
  run.metrics.push_back({{"step", 5}, {"best_estimated_loss", 1.875}});
  CHECK(best() == 1.875);
  run.metrics.clear();
  CHECK(best().is_null());
}

TEST_CASE("its table has a column per run, as wide as its widest cell") {
  const std::vector<std::string> lines =
      lines_of(comparison_text(comparison_json({record("one", 0.25, "a"), record("zwölf", 0.5, "a")}), 0));
  REQUIRE(lines.size() == 7);
  CHECK(lines[0] == "run                   one         zwölf");
  CHECK(lines[1] == "best validation loss  2.0000      2.0000");
  CHECK(lines[2] == "final training loss   1.5000      1.5000");
  CHECK(lines[3] == "tokens per second     200         200");
  CHECK(lines[4] == "seconds               1 min 10 s  1 min 10 s");
  CHECK(lines[5] == "last step             3           3");
  CHECK(lines[6] == "learning rate         0.25        0.5");
}

TEST_CASE("columns that do not fit next to each other go into another table") {
  std::vector<RunRecord> runs;
  for (int i = 0; i < 5; ++i)
    runs.push_back(record("run" + std::to_string(i), 0.25 + i, std::string(90, 'x')));
  const std::vector<std::string> lines = lines_of(comparison_text(comparison_json(runs), 60));
  std::size_t tables = 0;
  for (const std::string& line : lines) {
    CHECK(line.size() <= 60);
    tables += line.rfind("run ", 0) == 0 ? 1 : 0;
  }
  CHECK(tables == 2);
}

TEST_CASE("a long value keeps its end") {
  const std::string path = "/somewhere/" + std::string(80, 'x') + "/text.txt";
  const std::string text = comparison_text(comparison_json({record("a", 1, path), record("b", 1, "y")}), 0);
  CHECK(has(text, "/text.txt  "));
  CHECK_FALSE(has(text, "/somewhere"));
}

TEST_CASE("the weight of a loss keeps its digits") {
  RunRecord first = record("a", 1, "x"), second = record("b", 1, "x");
  first.config["balance_loss"] = 1e-5, second.config["balance_loss"] = 2e-5;
  const std::string text = comparison_text(comparison_json({first, second}), 0);
  CHECK((has(text, "1e-05") && has(text, "2e-05")));
}

TEST_CASE("losses drawn with characters fill the columns, and fall from the left to the right") {
  LossPoints training;
  for (int i = 1; i <= 400; ++i) training.emplace_back(i, 4.0 - 0.005 * i);
  const std::vector<std::string> plain = loss_plot(training, {{400, 2.9}}, 60, 8, false);
  REQUIRE(plain.size() == 9);
  CHECK(plain[0].substr(0, 14) == "    3.995 |...");
  CHECK(plain[7].substr(0, 11) == "        2 |");
  CHECK(plain[7].back() == '.');
  CHECK(plain[4].back() == 'o');  // the validation, half way up
  CHECK(plain[8].substr(0, 17) == "           step 1");
  for (const std::string& line : plain) CHECK(line.size() <= 60);
  const std::string dots = loss_plot(training, {}, 60, 8, true)[0];
  CHECK(has(dots, "\u2502\u2809"));  // the two dots at the top of the first cell
}

TEST_CASE("there is no plot of too few values or columns") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(loss_plot({{1, 2.0}, {2, nan}}, {}, 60, 8, false).empty());
  CHECK(loss_plot({{1, 2.0}, {2, 1.0}}, {}, 20, 8, false).empty());
  CHECK(loss_plot({{1, 2.0}, {2, 1.0}}, {}, 60, 2, false).empty());
  CHECK(loss_plot({{1, 2.0}, {2, 2.0}}, {}, 60, 8, false).size() == 9);  // of a height of nothing
}
