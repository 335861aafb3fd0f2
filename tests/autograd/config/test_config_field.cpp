#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

#include <limits>

using namespace tapeformer;

namespace {

struct Lamp {
  double watts = 0.5, share = 0.1;
  bool lit = false;
  std::optional<bool> red;
  std::vector<std::string> rooms{"hall", "attic"};

  void describe(const FieldVisitor& field) {
    field("watts", watts, kPositive);
    field("share", share, "of the light", kBelowOne);
    field("dark", Property([this] { return !lit; }, [this](bool dark) { lit = !dark; }), "or not");
    field("red", red);
    field.path("rooms", rooms, "where it is");
  }
};

}  // namespace

TEST_CASE("a configuration's fields have its values as text, and none where no value is set") {
  Lamp lamp;
  std::string texts;
  for (const ConfigField& field : fields_of(lamp)) texts += field.name + "=" + field.text() + ";";
  CHECK(texts == "watts=0.5;share=0.1;dark=true;red=none;rooms=hall, attic;");
  const FieldList fields = fields_of(lamp);
  CHECK(fields[0].member() == &lamp.watts);
  CHECK(fields[2].member() == nullptr);
  CHECK(fields[4].is_path);
  CHECK_FALSE(fields[3].value());
  CHECK(type_text(fields[3]) == std::string("true or false"));
}

TEST_CASE("setting a field sets the member, or what stands for it; only an optional one is unset") {
  Lamp lamp;
  FieldList fields = fields_of(lamp);
  fields[0].set(3.0), fields[2].set(false), fields[3].set(true);
  CHECK(lamp.watts == 3);
  CHECK(lamp.lit);
  CHECK(lamp.red == true);
  for (ConfigField& field : fields) field.set({});
  CHECK(lamp.watts == 3);
  CHECK(lamp.lit);
  CHECK_FALSE(lamp.red);
}

TEST_CASE("a program's options are the fields with a help, under its heading") {
  Lamp lamp;
  FieldList fields;
  lamp.describe(FieldVisitor(fields).in_group("Light"));
  REQUIRE(fields.size() == 3);
  CHECK(fields[0].name == "share");
  for (const ConfigField& field : fields) CHECK(field.group == std::string("Light"));
}

TEST_CASE("numbers that are set in code keep the same rules") {
  Lamp lamp;
  CHECK_NOTHROW(check_fields("op", fields_of(lamp)));
  lamp.share = 1;
  CHECK_THROWS_WITH_AS(check_fields("op", fields_of(lamp)), "[op] share must be in [0, 1); got 1", Error);
  CHECK_FALSE(kNotNegative.holds(std::numeric_limits<double>::infinity()));
  for (const double bad : {0.0, -1e-5, std::nan(""), std::numeric_limits<double>::infinity()}) {
    lamp = Lamp();
    lamp.watts = bad;
    CHECK_THROWS_WITH_AS(check_fields("op", fields_of(lamp)),
                         doctest::Contains("[op] watts must be positive; got "), Error);
  }
}
