#include <tapeformer/tests/reference/config_case.h>

using namespace tapeformer;

namespace {
enum class Sign { plus, minus };
}
template <>
inline constexpr EnumNames tapeformer::kNames<Sign>{"the sign", {"plus", "minus"}};

namespace {

struct Everything {
  bool flag = false, open = true;
  Sign sign = Sign::plus;
  Index whole = 1, size = 2;
  std::uint64_t seed = 9;
  double number = 0.5, small = 0.1;
  std::string text = "a";
  std::vector<std::string> list;
  std::optional<double> none;

  void describe(const FieldVisitor& field) {
    field("flag", flag, "help");
    field("closed", Property([this] { return !open; }, [this](bool value) { open = !value; }));
    field("sign", named(sign));
    field("whole", whole);
    field("size", size, kPositiveSize);
    field("seed", seed);
    field("number", number, kPositive);
    field("small", small, kBelowOne);
    field("text", text);
    field("list", list);
    field("none", Property([this] { return none; }, [this](const auto& value) { none = value; }));
  }
};

std::string refusal(const char* name, const Json& value) {
  Json json = json_of(Everything());
  json[name] = value;
  return read_message<Everything>(json);
}

}  // namespace

TEST_CASE("a configuration is an object of its fields, except those without a value") {
  CHECK(json_of(Everything()).dump() ==
        R"({"flag":false,"closed":false,"sign":"plus","whole":1,"size":2,"seed":9,"number":0.5,"small":0.1,)"
        R"("text":"a","list":[]})");
  Everything read;
  read_fields(Json::parse(R"({"closed":true,"none":2,"sign":"minus","list":["x"]})"), fields_of(read));
  CHECK_FALSE(read.open);
  CHECK(read.sign == Sign::minus);
  read_fields(Json::parse(R"({"sign":false})"), fields_of(read));  // from an older file
  CHECK(read.sign == Sign::plus);
  CHECK(read.none == 2);
  CHECK(read.list == std::vector<std::string>{"x"});
  CHECK(read.seed == 9);
}

TEST_CASE("values of another type or out of range are refused by the field's name") {
  for (const char* bad : {"\"ten\"", "1.9", "3.0", "1e30", "true", "null", "[3]", "18446744073709551615",
                          "18446744073709551616"}) {
    for (const std::string name : {"whole", "size"})
      CHECK(refusal(name.c_str(), Json::parse(bad)) ==
            name + " must be a whole number; got " + Json::parse(bad).dump());
  }
  for (const char* bad : {"-1", "0", "2147483648"})
    CHECK(refusal("size", Json::parse(bad)) == "size must be from 1 to 2147483647; got " + std::string(bad));
  CHECK(refusal("whole", -5) == "nothing was thrown");
  CHECK(refusal("seed", -5) == "seed must be a whole number, not negative; got -5");
  CHECK(refusal("seed", 18446744073709551615u) == "nothing was thrown");
  CHECK(refusal("number", "2") == "number must be a number; got \"2\"");
  CHECK(refusal("number", 2) == "nothing was thrown");
  CHECK(refusal("small", 1) == "small must be in [0, 1); got 1");
  for (const Json& bad : {Json(1), Json(0.0), Json(), Json("true")})
    CHECK(refusal("flag", bad) == "flag must be true or false; got " + bad.dump());
  CHECK(refusal("text", 1) == "text must be a string; got 1");
  CHECK(refusal("list", Json::parse("[\"a\", 1]")) == "list must be a list of strings; got [\"a\",1]");
  CHECK(refusal("sign", "times") == "sign must be plus or minus; got times");
  CHECK(read_message<Everything>(Json::array()) == "it must be an object; got []");
}

TEST_CASE("an unknown field is refused by its name, unless another reader of the same object knows it") {
  Json json = json_of(Everything());
  json["colour"] = "red";
  CHECK(read_message<Everything>(json) == "it has a field that this version does not know: colour");
  Everything read;
  CHECK_NOTHROW(read_fields(json, fields_of(read), {"colour"}));
}
