#include <tapeformer/autograd/config/json.h>
#include <tapeformer/examples/report/report_data.h>
#include <tapeformer/examples/shared/progress.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace tapeformer {

// The files of the folder page, which the build embeds: the page, with marks in place of style, script and
// data, its style, and its script in two parts: charts, and the panels below them.
std::string_view report_html();
std::string_view report_css();
std::string_view charts_js();
std::string_view panels_js();

namespace {

/// The curves, by the fields of metrics.jsonl.
constexpr const char* kCurves[] = {"train_loss", "validation_loss", "learning_rate", "gradient_norm",
                                   "tokens_per_second"};

Json curve_of(const std::vector<Json>& metrics, const char* field) {
  std::vector<const Json*> lines;
  std::vector<double> values;
  for (const Json& line : metrics) {
    if (!line.contains(field) || !std::isfinite(number_in(line, "step"))) continue;
    lines.push_back(&line);
    values.push_back(number_in(line, field));
  }
  Json curve = {
      {"step", Json::array()}, {"time", Json::array()}, {"tokens", Json::array()}, {"value", Json::array()}};
  for (const std::size_t i : decimated(values)) {
    curve["step"].push_back(number_in(*lines[i], "step"));
    curve["time"].push_back(number_or_null(number_in(*lines[i], "elapsed")));
    curve["tokens"].push_back(number_or_null(number_in(*lines[i], "tokens")));
    curve["value"].push_back(number_or_null(values[i]));
  }
  return curve;
}

/// Lines "name: text" about the model.
Json model_lines(const RunRecord& run) {
  Json lines = Json::array();
  const auto add = [&](const char* name, const std::string& text) { lines.push_back({name, text}); };
  for (const char* field : {"model", "layers", "encoder_layers", "decoder_layers", "width", "heads",
                            "attention", "context", "vocabulary", "source_vocabulary", "target_vocabulary"}) {
    const auto found = run.config.find(field);
    if (found == run.config.end() || !found->is_primitive()) continue;
    std::string name = field;
    std::replace(name.begin(), name.end(), '_', ' ');
    add(name.c_str(), found->is_string() ? found->get<std::string>() : found->dump());
  }
  const Json model = run.facts.value("model", Json::object());
  const double parameters = number_in(model, "parameters"), flops = number_in(model, "flops_a_token");
  if (std::isfinite(parameters)) add("parameters", count_text(parameters));
  if (flops > 0) add("operations per token", count_text(flops) + " (forward and backward, products alone)");
  const Json memory = model.is_object() ? model.value("memory", Json::object()) : Json();
  for (const auto& [kind, bytes] : memory.items())
    if (bytes.is_number() && bytes > 0) add(("memory: " + kind).c_str(), bytes_text(bytes.get<double>()));
  return lines;
}

Json data_of(const RunRecord& run) {
  Json curves = Json::object(), samples = Json::array(), bad_steps = Json::array();
  for (const char* field : kCurves) curves[field] = curve_of(run.metrics, field);
  for (const Json& line : run.metrics) {
    if (line.contains("samples"))
      samples.push_back({{"step", line.value("step", Json())}, {"texts", line["samples"]}});
    if (line.contains("bad_step")) bad_steps.push_back(line);
  }
  const auto thin_out = [](Json& list) {
    Json kept = Json::array();
    constexpr std::size_t kMost = 100;
    const std::size_t count = list.size();
    for (std::size_t i = 0; i < count; ++i)
      if (count <= kMost || i * kMost / count != (i + 1) * kMost / count) kept.push_back(list[i]);
    list = std::move(kept);
  };
  thin_out(samples), thin_out(bad_steps);
  return {{"name", run.name},
          {"best_loss", number_or_null(best_loss_of(run))},
          {"curves", curves},
          {"samples", samples},
          {"bad_steps", bad_steps},
          {"sessions", run.facts.value("sessions", Json::array())},
          {"attention", run.facts.value("attention", Json())},
          {"model", model_lines(run)}};
}

}  // namespace

std::vector<std::size_t> decimated(const std::vector<double>& values, std::size_t most) {
  std::set<std::size_t> kept;
  const std::size_t count = values.size();
  const std::size_t parts = count <= most ? count : std::max<std::size_t>(1, most / 3);
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t begin = part * count / parts, end = (part + 1) * count / parts;
    std::size_t least = end, greatest = end, none = end;
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isfinite(values[i])) {
        none = std::min(none, i);
        continue;
      }
      if (least == end || values[i] < values[least]) least = i;
      if (greatest == end || values[i] > values[greatest]) greatest = i;
    }
    kept.insert({least, greatest, none});
    kept.erase(end);
  }
  return {kept.begin(), kept.end()};
}

Json attention_json(const std::vector<Tensor>& weights, const std::string& layer_name,
                    const std::vector<std::string>& rows, const std::vector<std::string>& columns) {
  Json layers = Json::array();
  for (std::size_t layer = 0; layer < weights.size(); ++layer) {
    if (!weights[layer].defined()) continue;
    const Tensor weights_bhts = weights[layer].to(Device::cpu());
    const Index H = weights_bhts.size(1), T = weights_bhts.size(2), S = weights_bhts.size(3);
    Json heads = Json::array();
    for (Index i = 0; i < H * T * S; ++i) {
      if (i % (T * S) == 0) heads.push_back(Json::array());
      if (i % S == 0) heads.back().push_back(Json::array());
      heads.back().back().push_back(std::round(1000 * weights_bhts.at(i)) / 1000);
    }
    layers.push_back({{"name", format("{} {}", layer_name, layer)}, {"heads", std::move(heads)}});
  }
  if (layers.empty()) return {};
  return {{"rows", rows}, {"columns", columns}, {"layers", std::move(layers)}};
}

Json report_data(const std::vector<RunRecord>& runs) {
  Json all = Json::array();
  for (const RunRecord& run : runs) all.push_back(data_of(run));
  return {{"runs", all}};
}

std::string report_page(const Json& data) {
  const std::string json = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string text;
  text.reserve(json.size());
  for (const char c : json) c == '<' ? text += "\\u003c" : text += c;  // so that nothing ends the script
  std::string page(report_html());
  const auto replace = [&page](std::string_view mark, std::string_view by) {
    page.replace(page.find(mark), mark.size(), by);
  };
  replace("/* style */", report_css());
  replace("/* script */", std::string(charts_js()) + "\n" + std::string(panels_js()));
  replace("/* data */", text);
  return page;
}

}  // namespace tapeformer
