#include <tapeformer/examples/language/options.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/examples/translation/options.h>
#include <tapeformer/tests/examples/arguments.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/config_case.h>
#include <tapeformer/tests/reference/sanitized.h>

using namespace tapeformer;

TEST_CASE_TEMPLATE("every option is read from the command line and from JSON; older runs lack some", Options,
                   LanguageOptions, TranslationOptions) {
  const Json unchanged = Options();
  REQUIRE(unchanged.size() > 40);
  const Options usual;
  for (std::size_t i = 0; i < fields_of(usual).size(); ++i) {
    Options changed;
    ConfigField field = fields_of(changed)[i];
    if (!is_tried(i) || !change(field)) continue;
    const std::string& name = field.name;
    CAPTURE(name);
    const Json value = Json(changed).at(name), values = value.is_array() ? value : Json::array({value});
    std::vector<std::string> arguments;
    for (const Json& one : values) {
      arguments.push_back(flag_of(name) + (one.is_boolean() ? "=" + one.dump() : ""));
      if (!one.is_boolean()) arguments.push_back(one.is_string() ? one.get<std::string>() : one.dump());
    }
    const auto options = parsed<Options>(arguments);
    Json json = options;
    CHECK(json.at(name) == value);
    CHECK(Json(json.template get<Options>()) == json);
    if (name == "optimizer") continue;                              // whose options would be unknown
    if (name == "dropout" || name == "residual_dropout") continue;  // each of which sets the other
    json.erase(name);
    CHECK(Json(json.template get<Options>()) == unchanged);
  }
  CHECK(Json(parsed<Options>({"--qk-norm", "true"})).at("qk_norm") == "rms");  // once a flag
  Json newer = unchanged;
  newer["colour"] = 7;
  CHECK(message_of<CheckpointError>([&] { newer.get<Options>(); }) ==
        "the run's options are not usable: it has a field that this version does not know: colour");
}

TEST_CASE_TEMPLATE("a model is evaluated whatever trained it, but its run is resumed only with known options",
                   Options, LanguageOptions, TranslationOptions) {
  Json json = parsed<Options>({"--seed", "9"});
  json.update({{"optimizer", "adafactor"}, {"update_clip", 2}, {"r_drop", 0.3}, {"loss_spike", "back"}});
  const TemporaryFolder temporary;
  const RunFolder folder(temporary.file(""));
  folder.write("config.json", Json{{"training", json}}.dump());
  CHECK(options_of<Options>(folder).training.seed == 9);
  CHECK(has(message_of<CheckpointError>([&] { json.get<Options>(); }), "got adafactor"));
  json["colour"] = 7;
  folder.write("config.json", Json{{"training", json}}.dump());
  CHECK(has(message_of<CheckpointError>([&] { options_of<Options>(folder); }), "does not know: colour"));
}

TEST_CASE_TEMPLATE("every option has a help, under the heading of its group", Options, LanguageOptions,
                   TranslationOptions) {
  Options options;
  const CommandLine line;
  options.add_to(line);
  const std::string help = line.help();
  const Json unchanged = options;
  for (const auto& [name, before] : unchanged.items()) CHECK(has(help, "  " + flag_of(name) + " "));
  CHECK(has(help, "--newton-schulz-steps INT"));  // its field is a double, as all of optimizers
  for (const char* group :
       {"\nData:", "\nModel:", "\nModel: experts:", "\nTraining:", "\nTraining: optimizer:"})
    CHECK(has(help, group));
}

TEST_CASE_TEMPLATE("settings that differ from those of the original run are named", Options, LanguageOptions,
                   TranslationOptions) {
  const TemporaryFolder temporary;
  const std::string folder = temporary.file("");
  const auto others = [&](const std::string& config, const std::vector<std::string>& arguments) {
    if (!config.empty()) RunFolder(folder).write("config.json", config);
    const auto options = parsed<Options>(arguments);
    const std::string text = fine_tuning_text(folder, options, fields_of(options));
    const std::size_t end = text.find('\n');
    return end == std::string::npos ? "" : text.substr(end);
  };
  const auto config_of = [](const Options& trained) { return Json{{"training", Json(trained)}}.dump(); };
  CHECK(others("", {}).empty());                     // no config.json
  CHECK(others("{\"vocab_size\": 7}", {}).empty());  // another program's
  CHECK(others(config_of(Options()), {}).empty());
  CHECK(others(config_of(Options()), {"--width", "64", "--seed", "9"}) ==
        "\nnote: settings that differ from that run's (in brackets): --seed 9 (1)");
  const std::string trained = config_of(parsed<Options>({"--dropout", "0.05", "--optimizer", "muon"}));
  CHECK(others(trained, {"--dropout", "0.05", "--optimizer", "muon"}).empty());
  const std::string text = others(trained, {});
  for (const char* part : {"dropout 0", " (0.05)", "--optimizer \"adamw\" (\"muon\")"})
    CHECK(has(text, part));
}

TEST_CASE("small texts have defaults of their own, except for options that are given") {
  const Preset preset = {
      "p", "", {}, {{10, R"({"dropout": 0.4, "vocabulary": 1000})"}, {100, R"({"dropout": 0.3})"}}};
  const auto chosen = [&](Index size, const std::vector<std::string>& arguments) {
    const CommandLine line;
    TranslationOptions options = parsed<TranslationOptions>(arguments, line);
    const std::string text = choose_by_size(fields_of(options), preset, size, line);
    return format("{}; {} {}", text, options.model.layer.dropout, options.vocabulary);
  };
  CHECK(chosen(10, {}) == "--dropout 0.4 --vocabulary 1000; 0.4 1000");
  CHECK(chosen(11, {}) == "--dropout 0.3; 0.3 8000");
  CHECK(chosen(101, {}) == "; 0.1 8000");
  CHECK(chosen(10, {"--dropout", "0.1"}) == "--vocabulary 1000; 0.1 1000");
  CHECK(has(presets_text({preset}),
            "at most 10 examples: --dropout 0.4 --vocabulary 1000\n    at most 100 examples: --dropout 0.3"));
}
