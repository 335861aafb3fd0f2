#include <tapeformer/nn/formats/strict_json.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

JsonFields json_fields(const std::string& text) { return JsonFields(parse_json(text, "it", 4), "x."); }

/// The message of `read` for a field of {"a": value}.
template <class F>
std::string refusal_of(const std::string& value, const F& read) {
  JsonFields fields = json_fields("{\"a\": " + value + "}");
  return message_of<CheckpointError>([&] { read(fields); });
}

}  // namespace

TEST_CASE("fields are read with their types") {
  JsonFields fields = json_fields(
      R"({"size": 7, "number": 0.5, "whole": 2, "rate": 0, "flag": true, "text": "é", "none": null,
          "object": {"deep": 3}, "counts": [0, 7], "_own": [1], "fixed": 1, "harmless": {}})");
  CHECK(fields.size("size") == 7);
  CHECK(fields.counts("counts") == std::vector<Index>{0, 7});
  CHECK(fields.number("number") == 0.5);
  CHECK(fields.number("whole") == 2);
  CHECK(fields.rate("rate", 0.25) == 0);
  CHECK(fields.flag("flag", false));
  CHECK(fields.text("text") == "é");
  CHECK(fields.size("none", 5) == 5);
  CHECK(fields.number("absent", 1.5) == 1.5);
  CHECK(fields.rate("absent", 0.25) == 0.25);
  CHECK_FALSE(fields.flag("absent", false));
  CHECK_FALSE(fields.flag("none", true));
  CHECK(fields.text("absent", "else") == "else");
  CHECK(fields.has("size"));
  CHECK_FALSE(fields.has("none"));
  CHECK_FALSE(fields.has("absent"));
  JsonFields object = fields.object("object");
  CHECK(message_of<CheckpointError>([&] { object.finish(); }) ==
        "x.object.deep is unknown here and may change the arithmetic; if it does not, remove it");
  CHECK(object.size("deep") == 3);
  object.finish();
  fields.demand("fixed", 1.0);
  fields.demand("absent", true);
  fields.demand("none", true);
  CHECK(message_of<CheckpointError>([&] { fields.finish(); }) ==
        "x.harmless is unknown here and may change the arithmetic; if it does not, remove it");
  fields.ignore({"harmless"});
  fields.finish();
}

TEST_CASE("fields that are missing or of another type are refused by name") {
  const auto size = [](JsonFields& fields) { fields.size("a"); };
  const auto number = [](JsonFields& fields) { fields.number("a"); };
  for (const char* const bad :
       {"0", "-1", "2147483648", "99999999999999999999", "1.0", "\"1\"", "[]", "true"}) {
    CHECK(refusal_of(bad, size).find("x.a must be an integer from 1 to 2147483647; got ") == 0);
  }
  CHECK(refusal_of("2147483647", size) == "nothing was thrown");
  for (const char* const bad : {"0", "-0.5", "\"1\"", "true"}) {
    CHECK(refusal_of(bad, number) ==
          std::string("x.a must be a positive number; got ") + (bad[0] == '0' ? "0" : bad));
  }
  const auto rate = [](JsonFields& fields) { fields.rate("a", 0); };
  CHECK(refusal_of("1", rate) == "x.a must be in [0, 1); got 1");
  CHECK(refusal_of("-0.1", rate) == "x.a must be in [0, 1); got -0.1");
  CHECK(refusal_of("false", rate) == "x.a must be in [0, 1); got false");
  CHECK(refusal_of("1", [](JsonFields& fields) { fields.flag("a", true); }) ==
        "x.a must be true or false; got 1");
  CHECK(refusal_of("1", [](JsonFields& fields) { fields.text("a", "b"); }) == "x.a must be a string; got 1");
  CHECK(refusal_of("[]", [](JsonFields& fields) { fields.object("a"); }) == "x.a must be an object; got []");
  CHECK(refusal_of("2", [](JsonFields& fields) { fields.demand("a", 1); }) ==
        "x.a = 2 changes the arithmetic and is not implemented");
  CHECK(refusal_of("2", [](JsonFields& fields) { fields.demand("a", nullptr); }) ==
        "x.a = 2 changes the arithmetic and is not implemented");
  CHECK(refusal_of("1", [](JsonFields& fields) { fields.size("b"); }) == "x.b is missing");
  CHECK(refusal_of("null", number) == "x.a is missing");
  CHECK(refusal_of("null", [](JsonFields& fields) { fields.object("a"); }) == "x.a is missing");
  CHECK(message_of<CheckpointError>([] { JsonFields(parse_json("[1]", "it", 1), "the list"); }) ==
        "the list must be an object; got [1]");
  const std::string long_text = "\"" + std::string(200, 'y') + "\"";
  CHECK(refusal_of(long_text, size).size() < 150);
}

TEST_CASE("an error names its file, or the folder of it, once") {
  for (const auto& [what, named] : {std::pair("c", "a/b: c"),
                                    {"a/b: c", "a/b: c"},
                                    {"a/b/d: c", "a/b/d: c"},
                                    {"a/bd: c", "a/b: a/bd: c"}})
    CHECK(message_of<CheckpointError>([&, text = what] { naming("a/b", [&] { throw Error(text); }); }) ==
          named);
}
