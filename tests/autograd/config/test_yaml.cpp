#include <tapeformer/autograd/config/yaml.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <string>

using namespace tapeformer;

TEST_CASE("a mapping is an object, whose scalars have JSON's types unless they are quoted") {
  CHECK(parse_yaml("x",
                   "a: 1\nb: 0.5\nc: true\nd: dan\ne: \"\"\nf: '2'\ng: ~\nh:\n  - 1\n  - x\ni: []\n"
                   "lr: 1e-4\nv: v1.10.0 6f6d4846\n")
            .dump() == R"({"a":1,"b":0.5,"c":true,"d":"dan","e":"","f":"2","g":"~","h":[1,"x"],"i":[],)"
                       R"("lr":0.0001,"v":"v1.10.0 6f6d4846"})");
}

TEST_CASE("other YAML is refused with its line") {
  const auto refusal = [](const std::string& text) {
    return message_of<DataError>([&] { parse_yaml("x.yml", text); });
  };
  CHECK(refusal("a: {b: 1}") == "x.yml:1: is not a value");
  CHECK(refusal("a: &all\n  - *all") == "x.yml:1: is not a value");
  CHECK(refusal("a: 1\na: 2") == "x.yml:2: repeats a name");
  CHECK(refusal("a: 1\n[b]: 2") == "x.yml:2: is not a name");
  CHECK(refusal("a: 1\nb: [") == "x.yml:3: is not YAML: did not find expected node content");
  CHECK(refusal("[1]") == "x.yml: is not a mapping of names to values");
  CHECK(refusal("a: 1" + std::string(1 << 16, '\n')) == "x.yml: is too long for options");
  CHECK(refusal("") == "x.yml: is not a mapping of names to values");
}
