#include <tapeformer/examples/gradcheck/attention_checks.h>
#include <tapeformer/examples/gradcheck/planted_faults.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>

using namespace tapeformer;

namespace {

/// The attention weights of a mode, [B, H, T, S].
Tensor weights_in(const AttentionMode& mode, const CheckSizes& sizes = {}) {
  CheckSetting setting = setting_of(mode, sizes, sizes.heads, DType::f64);
  const Tensor query = setting.normal({setting.batch, setting.queries, sizes.heads, 4}),
               key = setting.normal({setting.batch, setting.keys, sizes.heads, 4});
  Tensor weights;
  AttentionOptions options(setting.context);
  options.weights = &weights;
  composed_attention(query, key, key, options);
  return weights;
}

}  // namespace

TEST_CASE("every mode that hides pairs hides some of them, but not all") {
  const std::set<std::string> hide_nothing{
      "self",          "self dropout",       "self learned bias", "cross",
      "cross dropout", "cross learned bias", "self position ids"};
  for (const AttentionMode& mode : attention_modes()) {
    INFO(mode.name);
    const Tensor weights = weights_in(mode);
    CHECK(weights.shape()[2] == (mode.packed ? 10 : 5));
    CHECK(weights.shape()[3] == (mode.cross ? 7 : 5) * (mode.packed ? 2 : 1));
    Index hidden = 0;
    for (Index i = 0; i < weights.elements(); ++i) hidden += weights.at(i) == 0 ? 1 : 0;
    CHECK((hidden > 0) == (hide_nothing.count(mode.name) == 0));
    CHECK(hidden < weights.elements() * 9 / 10);
    CheckSizes ones;  // even of sequences of one token each
    ones.batch = 4, ones.queries = ones.keys = 1;
    CHECK_NOTHROW(weights_in(mode, ones));
  }
}

TEST_CASE("modes are told apart by their weights") {
  std::vector<Tensor> seen;
  for (const AttentionMode& mode : attention_modes()) {
    if (mode.dropout || mode.positions) continue;  // weights do not show them
    INFO(mode.name);
    const Tensor weights = weights_in(mode);
    for (const Tensor& other : seen) {
      if (other.shape() == weights.shape()) CHECK(absolute_error(other, weights) > 0.01);
    }
    seen.push_back(weights);
  }
}

TEST_CASE("a check's function gives the same output at every call, with dropout too, and depends on it") {
  for (const AttentionCheck& check : selected_checks({"multi_head", "residual_post_norm"}, {"dropout"})) {
    INFO(check.layer, " ", check.mode.name);
    CheckSizes sizes;
    const CheckCase subject = check.make(sizes, DType::f64);
    const Tensor y = subject.function();
    CHECK(absolute_error(y, subject.function()) == 0);
    sizes.dropout = 0;
    CHECK(absolute_error(y, check.make(sizes, DType::f64).function()) > 0.01);
  }
}

TEST_CASE("every layer of nn/attention is there, and every one of its parameters is checked") {
  std::set<std::string> layers;
  for (const AttentionCheck& check : attention_checks()) {
    if (!layers.insert(check.layer).second) continue;
    INFO(check.layer);
    const CheckCase subject = check.make(CheckSizes(), DType::f64);
    const std::set<std::string> inputs{"x", "values", "first_values", "shared_keys", "shared_values"};
    Index parameters = 0;
    if (!subject.module) continue;
    for (const auto& [name, x] : subject.inputs) parameters += inputs.count(name) > 0 ? 0 : x.elements();
    CHECK(parameters == subject.parameters);
    CHECK(subject.module->parameter_count() == subject.parameters);
  }
  for (const char* layer :
       {"scaled_dot_product", "packed_projection", "weightless", "single_head", "multi_head",
        "multi_query_rotary", "differential", "latent_absorbed", "additive"})
    CHECK(layers.count(layer) == 1);
}

TEST_CASE("a mode is chosen by its whole name, or for self- and cross-attention by the rest of it") {
  CHECK(selected_checks({"multi_head"}, {"self window"}).size() == 1);
  CHECK(selected_checks({"multi_head"}, {"window"}).size() == 2);
  CHECK(selected_checks({"multi_head"}, {"self", "cross"}).size() == 2);
  CHECK(selected_checks({}, {}).size() == attention_checks().size());
  CHECK(message_of<Error>([] { selected_checks({"weightless"}, {"causal"}); }) ==
        "none of the layers named has any of the modes named; try --list");
}

TEST_CASE("tokens whose choice of experts is not close are found among any number of tokens") {
  CheckSizes sizes;
  sizes.queries = 600;
  const CheckCase subject = selected_checks({"experts"}, {}).front().make(sizes, DType::f64);
  CHECK(subject.inputs.front().second.size(1) == 600);
}

TEST_CASE("results as JSON hold every input's errors") {
  const AttentionCheck check = selected_checks({"matrices"}, {}).front();
  const auto json = results_json({run_check(check, {})}, {}, 1.5), row = json.at("checks").at(0);
  CHECK(json.at("passed") == true);
  CHECK(json.at("sizes").at("queries") == 5);
  CHECK(row.at("first").size() == 4);  // x, query, key, value
  CHECK(row.at("second").at(1).at("input") == "query");
  CHECK_BELOW(row.at("second").at(1).at("relative_error"), 1e-7);
  CHECK(row.at("second").at(1).at("elements") == 24);
  CHECK(row.at("J v").at(1).at("elements") == 2 * 5 * 3);  // the output
  CHECK(row.at("u'J v").at(3).at("input") == "value");
  CHECK(row.at("again").size() == 2 * 4);  // in two passes
  CHECK_FALSE(row.at("again").at(0).contains("fault"));
}

TEST_CASE("single precision repeats its passes, of both orders, and has no forward mode") {
  GradcheckRunOptions options;
  options.type = "f32";
  const CheckResult result = run_check(selected_checks({"matrices"}, {}).front(), options);
  CHECK(result.passed());
  CHECK(result.report.repeated_inputs.size() == 2 * 4);
  CHECK(result.report.forward_inputs.empty());
  options.repeats = false;
  CHECK(run_check(selected_checks({"matrices"}, {}).front(), options).report.repeated_inputs.empty());
}

TEST_CASE("the cause of a fault is given with the input's name, in the table and in JSON") {
  CheckResult result;
  GradcheckInput input;
  input.name = "query.weight";
  input.compare_bits(values({1, 2}), values({1, 2 + 4e-16}));
  result.report.repeated_inputs = {input};
  std::ostringstream table;
  print_row(table, result);
  CHECK(has(table.str(), "FAIL\n    again query.weight: another pass gives different bits\n"));
  CHECK(has(table.str(), " again query.weight[1] "));  // where it is worst
  const auto json = results_json({result}, {}, 1);
  CHECK(json["checks"][0]["again"][0]["fault"] == "another pass gives different bits");
  CHECK(json["passed"] == false);
}

TEST_CASE("a layer that throws is a failure with its message") {
  AttentionCheck check = selected_checks({"matrices"}, {}).front();
  check.make = [](const CheckSizes&, DType) -> CheckCase { throw Error("out of order"); };
  const CheckResult result = run_check(check, {});
  CHECK(!result.passed());
  CHECK(result.failure == "out of order");
  const std::vector<PlantedFault> faults = plant_faults(check, {});
  REQUIRE(faults.size() == 1);
  CHECK(!faults[0].as_it_should());
}

TEST_CASE(
    "planted faults: where a value is used three times, accumulation is missed; where nothing masks, no "
    "mask") {
  const auto count = [](const std::vector<PlantedFault>& faults, const std::string& name) {
    return std::count_if(faults.begin(), faults.end(),
                         [&](const PlantedFault& fault) { return fault.fault == name && fault.noticed; });
  };
  const auto plain = plant_faults(selected_checks({"weightless"}, {}).front(), {});
  CHECK(count(plain, "missing accumulation") == 1);
  CHECK(count(plain, "shifted mask") == 0);
  CHECK(count(plain, "none") == 0);
  const auto causal = plant_faults(selected_checks({"scaled_dot_product"}, {"self causal"}).front(), {});
  CHECK(count(causal, "shifted mask") == 2);
  CHECK(count(causal, "dropped term") == 3);
  CHECK(count(causal, "scale off by 1e-4") == 3);
  CHECK(count(causal, "lost gradient") == 1);
  CHECK(count(causal, "off when recorded") == 1);
  CHECK(count(causal, "other bits again") == 1);
  for (const PlantedFault& fault : causal) {
    CHECK(fault.as_it_should());
    const bool is_of_other_pass = fault.fault == "off when recorded" || fault.fault == "other bits again";
    const bool is_seen_there = fault.where.find("J v ") < 3 || fault.where.find("again ") == 0;
    if (fault.fault != "none") CHECK(is_seen_there == is_of_other_pass);
    if (fault.fault == "lost gradient") CHECK(has(fault.where, ": it gets no gradient"));
  }
}
