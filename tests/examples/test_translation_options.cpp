#include <tapeformer/examples/translation_options.h>
#include <tapeformer/tests/examples/arguments.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace tapeformer;

namespace {

TranslationOptions parsed(const std::vector<std::string>& arguments) {
  TranslationOptions options;
  const CommandLine line;
  options.add_to(line);
  read(line, arguments);
  return options;
}

std::string refusal(const std::vector<std::string>& arguments) {
  return message_of<Error>([&] { parsed(arguments).check(); });
}

}  // namespace

TEST_SUITE("examples/translation_options") {
  TEST_CASE("each kind of attention is a flag away, and reaches the model") {
    for (const char* kind : {"mha", "gqa", "mqa", "mla", "additive"}) {
      const TranslationOptions options = parsed({"--attention", kind});
      CHECK_NOTHROW(options.check());
      CHECK(name_of(options.model_config(10, 10).layer.attention) == std::string(kind));
    }
    const auto grouped =
        parsed({"--attention", "gqa", "--heads", "8", "--groups", "2", "--positions", "rotary"});
    CHECK_NOTHROW(grouped.check());
    CHECK(grouped.model_config(10, 10).layer.groups == 2);
    CHECK(grouped.model_config(10, 10).positions == PositionKind::rotary);
    const auto latent = parsed({"--attention", "mla", "--latent-width", "48", "--positions", "rotary"});
    CHECK_NOTHROW(latent.check());
    CHECK(latent.model_config(10, 10).layer.latent_width == 48);
    CHECK(parsed({}).model_config(10, 10).layer.attention == AttentionKind::multi_head);
    CHECK(parsed({}).model_config(10, 10).layer.packed);
  }

  TEST_CASE("what makes no sense together is refused by the options' names") {
    CHECK(refusal({"--attention", "linear"}) ==
          "[attention] the kind must be one of mha, gqa, mqa, mla, additive; got linear");
    CHECK(refusal({"--attention", "additive", "--positions", "rotary"})
              .find("--positions rotary turns the vectors whose products are the scores") == 0);
    CHECK(refusal({"--groups", "2"}) == "--groups needs --attention gqa");
    CHECK(refusal({"--attention", "mqa", "--latent-width", "8"}) == "--latent-width needs --attention mla");
    CHECK(refusal({"--attention", "gqa", "--groups", "3"}) ==
          "[attention] heads must be a multiple of groups; got attention=gqa, heads=4, groups=3");
    CHECK(refusal({"--width", "36", "--heads", "4", "--positions", "rotary"}).find("components=9") !=
          std::string::npos);
    CHECK(refusal({"--positions", "relative"}) ==
          "[positions] the kind must be sinusoidal, learned or rotary; got relative");
  }

  TEST_CASE("options survive JSON, and those of older runs, which name no attention, are multi-head") {
    const TranslationOptions options = parsed({"--attention", "gqa", "--groups", "2", "--positions", "rotary",
                                               "--steps", "7", "--recompute-layers"});
    nlohmann::ordered_json json = options;
    const auto read = json.get<TranslationOptions>();
    CHECK(nlohmann::ordered_json(read) == json);
    CHECK(read.attention == "gqa");
    CHECK(read.groups == 2);
    CHECK(read.training.recompute_layers);
    for (const char* name : {"attention", "groups", "latent_width", "recompute_layers"}) json.erase(name);
    const auto older = json.get<TranslationOptions>();
    CHECK(older.attention == "mha");
    CHECK(older.groups == 0);
    CHECK_FALSE(older.training.recompute_layers);
    CHECK(older.training.steps == 7);
    json.erase("steps");
    CHECK_THROWS_AS(json.get<TranslationOptions>(), nlohmann::json::exception);
  }
}
