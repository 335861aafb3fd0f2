#include <doctest/doctest.h>
#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/tests/reference/support.h>

using namespace tapeformer;

namespace {

std::string parse_refusal(const std::string& text, int most_levels = 2) {
  return message_of<CheckpointError>([&] { parse_json(text, "it", most_levels); });
}

}  // namespace

TEST_CASE("sound JSON is read, whatever its objects repeat of each other's keys") {
  const auto json = parse_json(R"( {"a": {"b": 1}, "b": {"b": [2], "a": null}} )", "it", 3);
  CHECK(json["a"]["b"] == 1);
  CHECK(json["b"]["b"][0] == 2);
}

TEST_CASE("keys given twice, deep nesting and what is not JSON are refused") {
  CHECK(parse_refusal("{\"a\": 1, \"a\": 1}") == "it has \"a\" twice");
  CHECK(parse_refusal("{\"x\": {\"b\": 1, \"c\": {}, \"b\": 1}}", 3) == "it has \"b\" twice");
  CHECK(parse_refusal("[{\"a\": 1}, {\"a\": 1, \"b\": [], \"a\": 2}]", 3) == "it has \"a\" twice");
  CHECK(parse_refusal("[[1]]") == "nothing was thrown");
  CHECK(parse_refusal("[[[1]]]") == "it is nested too deeply");
  CHECK(parse_refusal("[[[]]]") == "it is nested too deeply");
  CHECK(parse_refusal(std::string(1000000, '[')) == "it is nested too deeply");
  CHECK(parse_refusal("").find("it is not JSON: ") == 0);
  CHECK(parse_refusal("{\"a\": \"\xff\"}").find("it is not JSON: ") == 0);
  CHECK(parse_refusal("{\"a\": NaN}").find("it is not JSON: ") == 0);
  CHECK(parse_refusal("{} x").find("it is not JSON: ") == 0);
}

TEST_CASE("keys and the parser's words are shortened in messages") {
  const std::string shown(199, 'k'), key = shown + "\u00e9k";  // not within a character
  CHECK(parse_refusal("{\"" + key + "\": 1, \"" + key + "\": 1}") == "it has \"" + shown + "...\" twice");
  CHECK(parse_refusal("[" + std::string(100000, '1') + "]").size() < 300);
}

TEST_CASE("many keys are read quickly") {
  std::string text = "{\"k\":[";
  for (int i = 0; i < 200000; ++i) text += "{},";
  text += "0]";
  for (int i = 0; i < 200000; ++i) text += ",\"" + std::to_string(i) + "\":{}";
  const auto json = parse_json(text + "}", "it", 4);  // a linear search for each name took minutes
  CHECK(json.size() == 200001);
  CHECK(json["k"].size() == 200001);
  CHECK(json.begin().key() == "k");
  CHECK((--json.end()).key() == "199999");
}

TEST_CASE("a NUL byte does not end the text") {
  using namespace std::string_literals;
  CHECK(parse_refusal("{}\0anything"s) == "it is not JSON: it has a NUL at byte 3");
  CHECK(parse_refusal("{}\0"s) == "it is not JSON: it has a NUL at byte 3");
  CHECK(parse_refusal("\0"s) == "it is not JSON: it has a NUL at byte 1");
  CHECK(parse_json("\"\\u0000\"").get<std::string>() == "\0"s);  // is spelt so
}

TEST_CASE("keys come sorted or as in the file, and both kinds are equally strict") {
  const std::string text = R"({"b": 1, "a": 2})";
  CHECK(parse_json(text).dump() == R"({"b":1,"a":2})");
  CHECK(parse_json<nlohmann::json>(text).dump() == R"({"a":2,"b":1})");
  CHECK(message_of<CheckpointError>([] { parse_json<nlohmann::json>("{\"a\": 1, \"a\": 1}", "it"); }) ==
        "it has \"a\" twice");
}
