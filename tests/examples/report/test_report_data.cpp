#include <tapeformer/autograd/config/json.h>
#include <tapeformer/examples/report/report_data.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

using namespace tapeformer;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// The parts of a run folder that reports read.
std::string run_folder(const TemporaryFolder& temporary, const char* name, const std::string& config,
                       const std::string& metrics) {
  const std::string folder = temporary.file(name);
  std::filesystem::create_directories(folder);
  write_bytes(folder + "/config.json", config);
  write_bytes(folder + "/metrics.jsonl", metrics);
  return folder;
}

}  // namespace

TEST_CASE("a long curve keeps its extremes, its gaps and its order, in few points") {
  std::vector<double> values;
  for (int i = 0; i < 100000; ++i) values.push_back(std::sin(i / 1000.0));
  values[54321] = 99;
  values[12345] = -99;
  values[777] = kNan;
  const std::vector<std::size_t> kept = decimated(values, 2000);
  CHECK(kept.size() <= 2000);
  CHECK(kept.size() > 1000);
  CHECK(std::is_sorted(kept.begin(), kept.end()));
  CHECK(std::adjacent_find(kept.begin(), kept.end()) == kept.end());
  for (const std::size_t extreme : {54321u, 12345u, 777u})
    CHECK(std::find(kept.begin(), kept.end(), extreme) != kept.end());
  CHECK(decimated({1, kNan, 3}, 3) == std::vector<std::size_t>{0, 1, 2});
  CHECK(decimated({}, 3).empty());
}

TEST_CASE("a curve has the values of the metrics, and null where they lack one") {
  const TemporaryFolder temporary;
  const std::string folder = run_folder(temporary, "run", R"({"layers": 2, "training": {}})",
                                        R"({"step":1,"train_loss":2.5,"elapsed":0.5,"tokens":64}
{"step":2,"train_loss":null}
{"step":2,"bad_step":"the loss is nan","update":"skipped"}
{"train_loss":7}
{"step":3,"validation_loss":"none","samples":["x"]}
damaged
)");
  write_bytes(folder + "/report.json", R"({"model": null})");
  const Json run = report_data({read_run(folder)}).at("runs").at(0);
  CHECK(run.at("name") == "run");
  const Json& curve = run.at("curves").at("train_loss");
  CHECK(curve.dump() == R"({"step":[1.0,2.0],"time":[0.5,null],"tokens":[64.0,null],"value":[2.5,null]})");
  CHECK(run.at("curves").at("validation_loss").at("value").dump() == "[null]");
  CHECK(run.at("curves").at("gradient_norm").at("value").empty());
  CHECK(run.at("samples").dump() == R"([{"step":3,"texts":["x"]}])");
  CHECK(run.at("bad_steps").size() == 1);
  CHECK(run.at("model").dump() == R"([["layers","2"]])");
  CHECK(run.at("attention").is_null());
}

TEST_CASE("no text of a run ends the script that holds the data, and broken UTF-8 is replaced") {
  const Json data = {{"runs", {{{"name", "</script><!--"}, {"text", "a\xff"}}}}};
  const std::string page = report_page(data), without = report_page(Json::object());
  const auto count = [](const std::string& text, const std::string& part) {
    int found = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  CHECK(count(page, "</script") == count(without, "</script"));
  CHECK(count(page, "<!--") == 0);
  const std::string begin = "id=\"data\">";
  const std::size_t at = page.find(begin) + begin.size();
  const Json read = parse_json(page.substr(at, page.find("</script", at) - at));
  CHECK(read.at("runs").at(0).at("name") == "</script><!--");
  CHECK(read.at("runs").at(0).at("text") == "a\ufffd");
}

TEST_CASE("a page fetches nothing") {
  const std::string page = report_page(Json::object());
  for (const char* fetches : {"src=", "href=", "@import", "url(", "fetch("})
    CHECK_FALSE_MESSAGE(has(page, fetches), fetches);
  CHECK_FALSE(has(page, "/* "));  // every mark was replaced
}

TEST_CASE("a folder without a run is refused by its name") {
  const TemporaryFolder temporary;
  const auto message = [&](const char* name, const std::string& config, const std::string& facts) {
    const std::string folder = run_folder(temporary, name, config, "");
    if (!facts.empty()) write_bytes(folder + "/report.json", facts);
    const std::string said = message_of<Error>([&] { read_run(folder); });
    CHECK_MESSAGE(has(said, folder), said);
    return said;
  };
  CHECK(has(message("not_json", "{", ""), "config.json"));
  CHECK(has(message("other", "[]", ""), "config.json: is not a JSON object"));
  CHECK(has(message("list", R"({"training": {}})", "[1]"), "report.json: is not a JSON object"));
  const std::string none = temporary.file("none");
  CHECK(has(message_of<DataError>([&] { read_run(none); }), none + ": is not a folder"));
  std::filesystem::create_directories(none);
  CHECK(has(message_of<DataError>([&] { read_run(none); }), "holds no run"));
}

TEST_CASE("runs of the same name are distinguished by their paths") {
  const TemporaryFolder temporary;
  const std::string config = R"({"training": {}})";
  const std::string a = run_folder(temporary, "a/run", config, ""),
                    b = run_folder(temporary, "b/run", config, ""),
                    c = run_folder(temporary, "other", config, "");
  CHECK(read_runs({a, b}).at(1).name == b);
  CHECK(read_runs({a + "/", c}).at(0).name == "run");
}
