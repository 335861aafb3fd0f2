#include <tapeformer/autograd/error.h>
#include <tapeformer/optim/parameter_group.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

std::vector<Parameter> three() {
  std::vector<Parameter> all;
  for (const char* name : {"embedding.weight", "layers.0.up.weight", "layers.0.up.bias"}) {
    all.emplace_back(Tensor::zeros({1}));
    all.back().set_name(name);
  }
  return all;
}

}  // namespace

TEST_CASE("a group is parsed from a text, and its own text parses to the same group") {
  const ParameterGroup group = parameter_group_of("layers.*:optimizer=sgd,momentum=0.9,rate=0.1");
  CHECK(group.pattern == "layers.*");
  CHECK(group.optimizer == "sgd");
  CHECK(group.rate == 0.1);
  CHECK(group.options == OwnValues{{"momentum", 0.9}});
  const std::vector<std::string> texts{"a:rate=1,optimizer=sgd", "b.?:rate=0.30000000000000004,beta1=1e-300"};
  CHECK(texts_of(parameter_groups_of(texts)) == texts);
}

TEST_CASE("malformed groups are refused") {
  for (const char* text :
       {"", "embedding", ":rate=1", "a:", "a:rate", "a:=1", "a:rate=", "a:rate=x", "a:rate=1x", "a:rate=-1",
        "a:rate=inf", "a:rate=nan", "a:beta1=1e999", "a:optimizer=", "a:rate=1,rate=2"}) {
    CAPTURE(text);
    CHECK(message_of<Error>([&] { parameter_group_of(text); }).find("a group is PATTERN:NAME=NUMBER") == 0);
  }
}

TEST_CASE("a parameter belongs to the first group that matches, and the rest to the last") {
  const std::vector<Parameter> all = three();
  const auto parts = grouped(all, parameter_groups_of({"*.weigh[t]:rate=1", "layers.?.*:rate=1"}));
  REQUIRE(parts.size() == 3);
  CHECK(parts[0] == std::vector<Parameter>{all[0], all[1]});
  CHECK(parts[1] == std::vector<Parameter>{all[2]});
  CHECK(parts[2].empty());
  CHECK_THROWS_WITH_AS(grouped(all, parameter_groups_of({"layers.*:rate=1", "*.bias:rate=1"})),
                       "a group must match a parameter that no group before it has; got *.bias; the names "
                       "are embedding.weight, layers.0.up.weight, layers.0.up.bias",
                       Error);
}

TEST_CASE("parameters are frozen by patterns, each of which must match, and some are left") {
  const std::vector<Parameter> all = three();
  freeze(all, {});
  CHECK(trainable(all) == all);
  freeze(all, {"*.weight", "layers.*.weigh[t]"});
  CHECK(trainable(all) == std::vector<Parameter>{all[2]});
  CHECK(message_of<Error>([&] { freeze(all, {"*.bia"}); }) ==
        "[freeze] a pattern must match a parameter; got *.bia; the names are embedding.weight, "
        "layers.0.up.weight, layers.0.up.bias");
  CHECK(message_of<Error>([&] { freeze(all, {"*"}); }) ==
        "[freeze] some parameters must be left to train; got patterns that match all; try fewer");
  CHECK(trainable(all) == std::vector<Parameter>{all[2]});  // as before
}
